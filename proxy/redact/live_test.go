package redact

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// TestLive checks that a value is blanked however its bytes are split, and that bytes which may begin one are shown when
// no more come. What completes a value after that is blanked.
func TestLive(t *testing.T) {
	v := New("hunter22secret")
	from, to := io.Pipe()
	l := v.Live(from)
	got := make(chan string, 16)
	go func() {
		buf := make([]byte, 64)
		for {
			n, err := l.Read(buf)
			if n > 0 {
				got <- string(buf[:n])
			}
			if err != nil {
				close(got)
				return
			}
		}
	}()
	next := func(want string) {
		t.Helper()
		select {
		case s := <-got:
			if s != want {
				t.Errorf("%q, want %q", s, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("no %q", want)
		}
	}
	write := func(s string) {
		t.Helper()
		if _, err := io.WriteString(to, s); err != nil {
			t.Fatal(err)
		}
	}
	write("$ h")
	next("$ ")
	next("h") // idle
	write("i\n")
	next("i\n")
	write("a hunt")
	write("er22secret b hu")
	next("a ")
	next("************** b ")
	next("hu")
	write("nter")
	next("nter")
	write("22secret!")
	next("********!")
	write("hunter22secre")
	to.Close()
	next("hunter22secre")
	if s, ok := <-got; ok {
		t.Errorf("after the end: %q", s)
	}
}

func TestLiveEnds(t *testing.T) {
	from, to := io.Pipe()
	l := New("hunter22secret").Live(from)
	time.AfterFunc(20*time.Millisecond, func() { l.Close(); l.Close() })
	if n, err := l.Read(make([]byte, 8)); n != 0 || err != io.ErrClosedPipe {
		t.Error(n, err)
	}
	to.Write([]byte("x")) // the reading goroutine ends
	text := "aXhunter22secretY hunter22secre"
	for name, r := range map[string]io.Reader{"bytes": iotest.OneByteReader(strings.NewReader(text)), "at once": strings.NewReader(text)} {
		if b, err := io.ReadAll(New("hunter22secret").Live(r)); string(b) != "aX**************Y hunter22secre" || err != nil {
			t.Errorf("%s: %q %v", name, b, err)
		}
	}
	if b, err := io.ReadAll((*Values)(nil).Live(strings.NewReader("x"))); string(b) != "x" || err != nil {
		t.Error(b, err)
	}
}
