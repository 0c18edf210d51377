package stream

import (
	"bytes"
	"encoding/base64"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
)

// TestPumpDestinations checks that pumps copy to every kind of file.
func TestPumpDestinations(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 300_000)
	dir := t.TempDir()
	file, _ := os.Create(dir + "/file")
	appended, _ := os.OpenFile(dir+"/log", os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	pr, pw, _ := os.Pipe()
	for _, c := range []struct {
		name     string
		dst      *os.File
		from     *os.File // where the copy can be read; nil: in dst itself
		splicing bool
	}{
		{"file", file, nil, false}, {"append", appended, nil, false},
		{"socket", os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b"), false},
		{"pipe", pw, pr, true},
	} {
		r, w, err := pipe(0, true)
		if err != nil {
			t.Fatal(err)
		}
		p := &Pump{src: r, dst: c.dst, polled: true}
		p.start()
		if p.splices != c.splicing {
			t.Errorf("%s: splices: %t", c.name, p.splices)
		}
		got := make(chan []byte, 1)
		if c.from != nil {
			go func() { b := make([]byte, len(data)); readFull(c.from, b); got <- b }()
		}
		WriteAll(FD(w), data)
		w.Close()
		<-p.Done
		if c.from == nil {
			b, _ := os.ReadFile(c.dst.Name())
			got <- b
		}
		if !bytes.Equal(<-got, data) || p.moved.Load() != int64(len(data)) || p.CopyError() != nil {
			t.Errorf("%s: moved %d of %d, %v", c.name, p.moved.Load(), len(data), p.err)
		}
	}
}

func readFull(f *os.File, b []byte) {
	for n := 0; n < len(b); {
		m, err := f.Read(b[n:])
		if err != nil {
			return
		}
		n += m
	}
}

// TestDrain checks that a pipe that a background process holds open counts as drained once it is empty.
func TestDrain(t *testing.T) {
	r, w, err := pipe(0, true)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	out, _ := os.Create(t.TempDir() + "/out")
	p := &Pump{src: r, dst: out, polled: true}
	WriteAll(FD(w), []byte("all of it"))
	p.start()
	drain([]*Pump{p, nil}, 0)
	if b, _ := os.ReadFile(out.Name()); string(b) != "all of it" {
		t.Errorf("%q", b)
	}
}

// TestDrainGivesUp checks that drain gives up on a reader that does not read, if it has a limit.
func TestDrainGivesUp(t *testing.T) {
	r, w, _ := pipe(0, true)
	fullR, fullW, _ := pipe(0, false)
	defer fullR.Close()
	unix.SetNonblock(FD(fullW), true)
	for b := make([]byte, 4096); ; {
		if _, err := unix.Write(FD(fullW), b); err != nil {
			break
		}
	}
	p := &Pump{src: r, dst: fullW, polled: true}
	WriteAll(FD(w), []byte("stuck"))
	p.start()
	drain([]*Pump{p}, 30*time.Millisecond)
	if p.drained() {
		t.Error("drained into a full pipe")
	}
}

func TestPending(t *testing.T) {
	r, w, err := pipe(0, true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := &Pump{src: r}
	if p.rc, err = r.SyscallConn(); err != nil || p.pending() {
		t.Errorf("nothing was written: %v", err)
	}
	WriteAll(FD(w), []byte("x"))
	if !p.pending() {
		t.Error("a byte is not seen")
	}
	r.Read(make([]byte, 1))
	w.Close()
	if !p.pending() {
		t.Error("the end is not seen")
	}
}

func TestTail(t *testing.T) {
	var l tail
	line := []byte(strings.Repeat("é", 500) + "\n")
	for range 5000 {
		l.add(line)
	}
	kept, exact := l.text()
	text, total := kept.Text, kept.Bytes
	if total != int64(5000*len(line)) || len(text) > runner.OutputKept || len(text) < runner.OutputKept-4 || exact != "" || !strings.HasSuffix(text, "é\n") {
		t.Errorf("kept %d of %d, base64 %d", len(text), total, len(exact))
	}
	var b tail
	b.add([]byte("a\xff\xfeb"))
	kept, exact = b.text()
	text = kept.Text
	if raw, _ := base64.StdEncoding.DecodeString(exact); text != "a\uFFFDb" || string(raw) != "a\xff\xfeb" {
		t.Errorf("%q, %q", text, raw)
	}
}

// TestFloor checks that the command's output waits while a question has the floor, and only until the command
// ends.
func TestFloor(t *testing.T) {
	r, w, err := pipe(0, true)
	if err != nil {
		t.Fatal(err)
	}
	pr, pw, _ := os.Pipe()
	over := make(chan struct{})
	p := &Pump{src: r, dst: pw, polled: true, floor: make(Floor, 1), over: over}
	leave := p.floor.Take(nil)
	p.start()
	w.WriteString("a")
	for !p.busy.Load() {
		time.Sleep(time.Millisecond)
	}
	if p.moved.Load() != 0 || p.splices {
		t.Error("written while a question was open")
	}
	leave()
	got := make([]byte, 2)
	readFull(pr, got[:1])
	defer p.floor.Take(nil)()
	close(over)
	w.WriteString("b")
	readFull(pr, got[1:])
	if w.Close(); string(got) != "ab" {
		t.Errorf("%q", got)
	}
	<-p.Done
}
