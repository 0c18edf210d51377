package session

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/runner"
)

func TestTailOf(t *testing.T) {
	for _, c := range []struct {
		b    string
		most int
		all  int64
		want Tail
	}{
		{"", 4, 0, Tail{}},
		{"abc", 4, 3, Tail{Text: "abc", Bytes: 3}},
		{"abcd", 4, 4, Tail{Text: "abcd", Bytes: 4}},
		{"abcde", 4, 5, Tail{Text: "bcde", Bytes: 5, Cut: true}},
		{"bcde", 4, 9, Tail{Text: "bcde", Bytes: 9, Cut: true}},
		{"xöy", 2, 4, Tail{Text: "y", Bytes: 4, Cut: true}}, // within ö
		{"öö", 3, 4, Tail{Text: "ö", Bytes: 4, Cut: true}},  // within the first ö
		{"a\U0001F600b", 4, 6, Tail{Text: "b", Bytes: 6, Cut: true}},
		{"\x80\x81", 4, 2, Tail{Text: "\uFFFD", Bytes: 2}},
		{"a\xffb", 4, 3, Tail{Text: "a\uFFFDb", Bytes: 3}},
	} {
		if got := tailOf([]byte(c.b), c.most, c.all); got != c.want {
			t.Errorf("tailOf(%q, %d, %d) = %+v, want %+v", c.b, c.most, c.all, got, c.want)
		}
	}
}

// TestStreamEnd checks that the kept end does not depend on how the stream was split into reads.
func TestStreamEnd(t *testing.T) {
	text := strings.Repeat("0123456789", 100)
	for _, piece := range []int{1, 7, 64, 999, 1000} {
		s, from := newStream(64), strings.NewReader(text)
		var also bytes.Buffer
		s.also = &also
		for {
			b := make([]byte, piece)
			n, err := from.Read(b)
			s.take(b[:n])
			if err == io.EOF {
				break
			}
		}
		want := Tail{Text: text[len(text)-64:], Bytes: int64(len(text)), Cut: true}
		if got := s.last(); got != want || len(s.end.End(1<<20)) > 128 || also.String() != text {
			t.Errorf("pieces of %d: %+v, %d bytes kept", piece, got, len(s.end.End(1<<20)))
		}
	}
}

func TestGlimpse(t *testing.T) {
	s := newStream(runner.OutputKept)
	s.take([]byte("short\n"))
	if got := s.glimpse(); got.Text != "short\n" || got.Bytes != 6 {
		t.Errorf("%+v", got)
	}
	s.take([]byte(strings.Repeat("x", glimpse) + "\nlast line\n"))
	if got := s.glimpse(); got.Text != "last line\n" || got.Bytes != 6+glimpse+11 {
		t.Errorf("%+v", got)
	}
}

// TestStreamFinish checks that a stream whose pipe another process still holds finishes with what is in the
// pipe.
func TestStreamFinish(t *testing.T) {
	for _, alone := range []bool{true, false} {
		s := newStream(1 << 20)
		w, err := s.open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteString("before"); err != nil {
			t.Fatal(err)
		}
		if alone {
			w.Close()
		}
		s.finish(alone)
		if got := s.last().Text; got != "before" {
			t.Errorf("alone %v: %q", alone, got)
		}
		if alone {
			continue
		}
		if _, err := w.WriteString("after"); err != nil {
			t.Errorf("a process left behind cannot write: %v", err)
		}
		if got := s.last().Text; got != "before" {
			t.Errorf("kept what came later: %q", got)
		}
		w.Close()
	}
}

// TestPlace checks that output is placed under its name, and that existing entries are renamed.
func TestPlace(t *testing.T) {
	root := t.TempDir()
	o, err := outputs{dir: root}.open("")
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	for i, plant := range []func(path string) error{
		func(string) error { return nil },
		func(path string) error { return os.WriteFile(path, []byte("theirs"), 0o644) },
		func(path string) error { return os.Symlink("/etc/passwd", path) },
		func(path string) error { return os.Mkdir(path, 0o755) },
	} {
		path := filepath.Join(o.path, "log")
		os.Remove(path)
		if err := plant(path); err != nil {
			t.Fatal(err)
		}
		f, err := nameless(root)
		if err != nil {
			t.Fatal(err)
		}
		f.WriteString("ours")
		if err := o.place(f, "log"); err != nil {
			t.Error(err)
		}
		f.Close()
		if got, err := os.ReadFile(path); string(got) != "ours" {
			t.Errorf("plant %d: %q %v", i, got, err)
		}
	}
	entries, _ := os.ReadDir(o.path)
	if len(entries) != 4 { // log, and three renamed entries
		t.Errorf("left: %v", entries)
	}
}

// TestPlaceCopies checks that a file that cannot be linked is copied.
func TestPlaceCopies(t *testing.T) {
	o, err := outputs{dir: t.TempDir()}.open("")
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	r, err := nameless("/dev/shm")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.WriteString("from another file system")
	if err := o.place(r, "log"); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(o.path, "log")); string(got) != "from another file system" {
		t.Errorf("%q", got)
	}
}

// TestUndo checks that undo removes an empty directory, and no other.
func TestUndo(t *testing.T) {
	root := t.TempDir()
	for _, used := range []bool{false, true} {
		o, err := outputs{dir: root}.open("")
		if err != nil {
			t.Fatal(err)
		}
		if used {
			os.WriteFile(filepath.Join(o.path, "f"), nil, 0o644)
		}
		o.undo()
		if _, err := os.Stat(o.path); (err == nil) != used {
			t.Errorf("used %v: %v", used, err)
		}
	}
}

// TestFurtherInput checks that a command which ends before it reads its input does not end the next command's.
func TestFurtherInput(t *testing.T) {
	text := strings.Repeat("x", 1<<20)
	c := &collector{stdin: text, out: newStream(64), errs: newStream(64)}
	for n := range 40 {
		var cmd runner.Command
		if err := c.Open(&cmd); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Dup(int(cmd.Stdin.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		in := os.NewFile(uintptr(fd), "stdin")
		p := reading{from: in}
		if n%2 == 1 {
			p.bytes = len(text)
		}
		if _, err := c.Carry(t.Context(), p, func() {}); err != nil {
			t.Fatalf("command %d: %v", n, err)
		}
		in.Close()
	}
}

// reading is a Process that ends when it has read some bytes.
type reading struct {
	ended
	from  io.Reader
	bytes int
}

func (r reading) Wait(ctx context.Context) (*runner.Result, error) {
	if _, err := io.CopyN(io.Discard, r.from, int64(r.bytes)); err != nil {
		return nil, err
	}
	return r.ended.Wait(ctx)
}
