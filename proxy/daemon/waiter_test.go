package daemon

import (
	"net"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// listening returns a socket as sent by the runner, which keeps it open too, and its address.
func listening(t *testing.T) (f *os.File, at string) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if f, err = l.(*net.TCPListener).File(); err != nil {
		t.Fatal(err)
	}
	return f, l.Addr().String()
}

// TestWaiter: a socket is served once, at its first connection, even one that came before wait. Unused sockets have
// no goroutine.
func TestWaiter(t *testing.T) {
	d, err := newWaiter()
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	served := make(chan string, 100)
	var all []string
	for range 100 {
		f, at := listening(t)
		if len(all) == 0 {
			dial(t, at) // it connects before wait
		}
		if _, err := d.wait(f, func(f *os.File) { served <- at; f.Close() }); err != nil {
			t.Fatal(err)
		}
		all = append(all, at)
	}
	if got := <-served; got != all[0] {
		t.Errorf("%s is served, not %s", got, all[0])
	}
	for _, at := range []string{all[99], all[50]} {
		dial(t, at)
		dial(t, at)
		if got := <-served; got != at {
			t.Errorf("%s is served, not %s", got, at)
		}
	}
	if n := runtime.NumGoroutine() - before; n > 3 {
		t.Errorf("97 sockets without connections have %d goroutines", n)
	}
}

// TestWaiterLeave: leave closes a waiting socket, which is then not served although the runner still has it open. It
// does not close a socket that is being served.
func TestWaiterLeave(t *testing.T) {
	d, err := newWaiter()
	if err != nil {
		t.Fatal(err)
	}
	left, at := listening(t)
	n, err := d.wait(left, func(*os.File) { t.Error("served what was left") })
	if err != nil {
		t.Fatal(err)
	}
	d.leave(n)
	d.leave(n)
	if left.Close() == nil {
		t.Error("what was left is open")
	}
	dial(t, at)
	served := make(chan *os.File)
	other, at := listening(t)
	if n, err = d.wait(other, func(f *os.File) { served <- f }); err != nil {
		t.Fatal(err)
	}
	dial(t, at)
	f := <-served
	d.leave(n)
	if err := f.Close(); err != nil {
		t.Errorf("what is served was closed: %v", err)
	}
	plain, err := os.Open("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.wait(plain, nil); err == nil || plain.Close() == nil {
		t.Errorf("waits at what is not a socket: %v", err)
	}
}

func dial(t *testing.T, at string) {
	t.Helper()
	c, err := net.Dial("tcp4", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
}

// TestServedSoon: without a free descriptor, served retries until one is free or the sandbox is closed.
func TestServedSoon(t *testing.T) {
	b := &sandbox{}
	tries := 0
	open := func(*os.File) (int, error) {
		if tries++; tries < 3 {
			return 0, unix.EMFILE
		}
		return tries, nil
	}
	f, _ := listening(t)
	got := 0
	served(b, f, open, func(n int) error { got = n; return nil })
	if got != 3 || f.Close() == nil {
		t.Errorf("served after %d tries; the first descriptor is closed: %v", got, f.Close() != nil)
	}
	b.closed = true
	f, _ = listening(t)
	served(b, f, open, func(int) error { t.Error("served what is closed"); return nil })
	if f.Close() == nil {
		t.Error("an unserved socket is open")
	}
}
