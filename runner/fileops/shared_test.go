package fileops

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// sharing calls a process, which has shared memory, for a Put of content. serve is the process.
func sharing(t *testing.T, path string, content io.Reader, serve func(in, out, memory *os.File)) (*Answer, bool, error) {
	t.Helper()
	asks, to, err1 := os.Pipe()
	from, answers, err2 := os.Pipe()
	shared, memory, err3 := Share()
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		serve(asks, answers, memory)
		asks.Close()
		answers.Close()
		close(ended)
	}()
	a, again, err := Call(bufio.NewWriter(to), bufio.NewReader(from), shared, Request{Op: OpPut, Path: path}, func(w io.Writer) error {
		_, err := io.Copy(w, content)
		return err
	}, nil)
	to.Close()
	<-ended
	from.Close()
	memory.Close()
	shared.Close()
	return a, again, err
}

func serveShared(in, out, memory *os.File) { Serve(in, out, memory) }

// TestShared sends long files through shared memory, in pieces of several sizes. One that breaks off changes nothing.
func TestShared(t *testing.T) {
	d := t.TempDir()
	content := bytes.Repeat([]byte("0123456789abcde"), 600_000) // no multiple of a slot
	for _, size := range []int{longPut - 1, longPut, longPut + 1, longPut + sharedSize, len(content)} {
		for _, pieces := range []int{7000, 1 << 20} {
			path := d + "/new"
			r := io.Reader(bytes.NewReader(content[:size]))
			a, again, err := sharing(t, path, struct{ io.Reader }{&slow{r, pieces}}, serveShared)
			if err != nil || a.Infos[0].Size != int64(size) || again && size > longPut+pieceMost {
				t.Fatalf("%d bytes: %+v %v %v", size, a, again, err)
			}
			if got, err := os.ReadFile(path); !bytes.Equal(got, content[:size]) {
				t.Errorf("%d bytes in pieces of %d: others, %v", size, pieces, err)
			}
			os.Remove(path)
		}
	}
	broken := errors.New("broken")
	cut := io.MultiReader(bytes.NewReader(content[:2*longPut]), readerOf(func([]byte) (int, error) { return 0, broken }))
	if _, again, err := sharing(t, d+"/cut", cut, serveShared); !errors.Is(err, broken) || again {
		t.Errorf("a stream that breaks off: %v %v", again, err)
	}
	all := func() io.Reader { return struct{ io.Reader }{bytes.NewReader(content)} }
	if _, _, err := sharing(t, d, all(), serveShared); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("a directory: %v", err)
	}
	if _, _, err := sharing(t, d+"/unmapped", all(), func(in, out, _ *os.File) {
		Serve(in, out, in) // has no such memory
	}); err == nil {
		t.Error("memory that cannot be mapped: no error")
	}
	if entries, _ := os.ReadDir(d); len(entries) > 0 {
		t.Errorf("left: %v", entries)
	}
}

type readerOf func([]byte) (int, error)

func (r readerOf) Read(b []byte) (int, error) { return r(b) }

// slow reads small pieces.
type slow struct {
	from io.Reader
	most int
}

func (s *slow) Read(b []byte) (int, error) { return s.from.Read(b[:min(len(b), s.most)]) }

// TestSharedHostile checks that a process in a sandbox can neither write to the memory nor change its size, and that its wrong
// replies are errors.
func TestSharedHostile(t *testing.T) {
	shared, memory, err := Share()
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	if err := memory.Truncate(0); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("truncate: %v", err)
	}
	if _, err := memory.WriteAt([]byte("x"), 0); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("write: %v", err)
	}
	if err := unix.Fallocate(int(memory.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("punch a hole: %v", err)
	}
	if _, err := unix.Mmap(int(memory.Fd()), 0, sharedSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("map for writing: %v", err)
	}
	again, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(memory.Fd())), os.O_RDWR, 0)
	if err == nil {
		if _, err = again.WriteAt([]byte("x"), 0); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("write to the file opened again: %v", err)
		}
		again.Close()
	}
	memory.Close()
	for _, reply := range []string{"", "\n", "x", "{}", "\x06\x06\x06", "\x06{\"errno\":28,\"error\":\"write x: full\"}\n", string(bytes.Repeat([]byte{taken}, 1<<16))} {
		_, again, err := sharing(t, "/x", zeros{}, func(in, out, _ *os.File) {
			go out.WriteString(reply)
			io.CopyN(io.Discard, in, longPut)
		})
		if again || err == nil {
			t.Errorf("%.20q: %v %v", reply, again, err)
		}
	}
}
