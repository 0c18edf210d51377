package ipc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"demesne/internal/need"

	"golang.org/x/sys/unix"
)

func pair(t *testing.T) (*Conn, *Conn) {
	t.Helper()
	a, b, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	ca, cb := NewConn(a), NewConn(b)
	t.Cleanup(func() { ca.Close(); cb.Close() })
	return ca, cb
}

func TestMessageOfAnySize(t *testing.T) {
	for _, n := range []int{0, 1, packetSize - 40, packetSize, packetSize + 1, 3 * packetSize, maxMessage / 2} {
		a, b := pair(t)
		want := Bytes(bytes.Repeat([]byte{0xff, 0x00, 'x'}, n/3+1)[:n])
		go a.Send(Message{ID: 9, Op: "op"}, want, nil)
		m, err := b.Recv()
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		var got Bytes
		if err := m.Decode(&got); err != nil || !bytes.Equal(got, want) || m.ID != 9 || m.Op != "op" {
			t.Errorf("%d bytes: got %d, id %d, op %q, err %v", n, len(got), m.ID, m.Op, err)
		}
	}
}

func TestTooLong(t *testing.T) {
	a, _ := pair(t)
	if err := a.Send(Message{Op: "op"}, strings.Repeat("x", maxMessage), nil); !errors.Is(err, ErrTooLong) {
		t.Errorf("err = %v, want ErrTooLong", err)
	}
}

func TestFilesByName(t *testing.T) {
	a, b := pair(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := a.Send(Message{Op: "op"}, nil, Files{"in": r, "out": w, "none": nil}); err != nil {
		t.Fatal(err)
	}
	w.Close()
	m, err := b.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if m.File("none") != nil || m.File("other") != nil {
		t.Error("received a descriptor that was not sent")
	}
	out := m.File("out")
	if out == nil || m.File("out") != nil {
		t.Fatal("out can be taken once")
	}
	if flags, err := unix.FcntlInt(out.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Error("received descriptor is not close-on-exec")
	}
	fmt.Fprint(out, "hello")
	out.Close()
	m.Close()
	if got, _ := io.ReadAll(r); string(got) != "hello" {
		t.Errorf("got %q through the descriptor", got)
	}
}

// TestUnnamedDescriptorIsRefused: a message that names fewer or more descriptors than it carries is refused, and all
// its descriptors are closed (P10).
func TestUnnamedDescriptorIsRefused(t *testing.T) {
	a, b, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	cb := NewConn(b)
	defer cb.Close()
	r, w, _ := os.Pipe()
	raw := append([]byte{flagLast}, `{"op":"x"}`...)
	if err := unix.Sendmsg(int(a.Fd()), raw, unix.UnixRights(int(w.Fd())), nil, 0); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if m, err := cb.Recv(); err == nil {
		t.Fatalf("got %+v", m)
	}
	r.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the descriptor is still open: %v", err)
	}
}

func TestGarbageIsAnError(t *testing.T) {
	for _, raw := range []string{"\x00", "\x00{", "\x00[]", "\x00{\"id\":-1}", "\x01", "\x07null"} {
		a, b, _ := Pair()
		unix.Write(int(a.Fd()), []byte(raw))
		a.Close()
		if m, err := NewConn(b).Recv(); err == nil {
			t.Errorf("%q: got %+v", raw, m)
		}
		b.Close()
	}
}

func TestCallsBothWaysAtOnce(t *testing.T) {
	a, b := pair(t)
	echo := func(p **Peer) func(*Message) {
		return func(m *Message) {
			go func() {
				defer m.Close()
				var n int
				m.Decode(&n)
				if n%7 == 0 {
					(*p).Fail(m, Errorf(CodeInvalid, "serve %d: sevens", n))
					return
				}
				(*p).Reply(m, n*2, nil)
			}()
		}
	}
	var pa, pb *Peer
	pa, pb = NewPeer(a, echo(&pa)), NewPeer(b, echo(&pb))
	go pa.Serve()
	go pb.Serve()
	var wg sync.WaitGroup
	for i := range 200 {
		for _, p := range []*Peer{pa, pb} {
			wg.Go(func() {
				var got int
				err := p.Call(context.Background(), "double", i, nil, &got)
				var e *Error
				if i%7 == 0 {
					if !errors.As(err, &e) || e.Code != CodeInvalid {
						t.Errorf("%d: err = %v", i, err)
					}
				} else if err != nil || got != 2*i {
					t.Errorf("%d: got %d, %v", i, got, err)
				}
			})
		}
	}
	wg.Wait()
}

func TestCallEndsWithTheConnection(t *testing.T) {
	a, b := pair(t)
	p := NewPeer(a, func(m *Message) { m.Close() })
	go p.Serve()
	go func() {
		b.Recv()
		b.Close()
	}()
	if err := p.Call(context.Background(), "op", nil, nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("err = %v, want ErrClosed", err)
	}
	<-p.Done()
}

// TestSendAfterTheEnd checks that the error of a send says that the other side has ended, whether or not that side read all.
func TestSendAfterTheEnd(t *testing.T) {
	for _, unread := range []bool{false, true} {
		a, b := pair(t)
		if unread {
			a.Send(Message{Op: "op"}, nil, nil)
		}
		b.Close()
		if err := a.Send(Message{Op: "op"}, nil, nil); !errors.Is(err, unix.EPIPE) && !errors.Is(err, os.ErrClosed) {
			t.Errorf("unread %v: err = %v, want EPIPE or ErrClosed", unread, err)
		}
	}
}

func TestErrorKeepsItsHint(t *testing.T) {
	inner := &Error{Code: CodeRequirement, Text: "require x: no", Hint: "type this"}
	e := Errorf(CodeInternal, "create: %w", inner)
	if e.Text != "create: require x: no" || e.Hint != "type this" {
		t.Errorf("got %+v", e)
	}
	for err, want := range map[error]Code{
		fmt.Errorf("write: %w", syscall.ENOSPC):                    CodeNoSpace,
		fmt.Errorf("a: %w", Errorf(CodeNoSpace, "b")):              CodeNoSpace,
		&fs.PathError{Op: "write", Path: "p", Err: syscall.EDQUOT}: CodeNoSpace,
		syscall.ENOENT: CodeInternal,
		Errorf(CodeBusy, "a: %w", syscall.ENOSPC): CodeBusy,
	} {
		if got := AsError(err).Code; got != want || Full(err) != (want == CodeNoSpace) {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
	if got := AsError(fmt.Errorf("run: %w", inner)); got.Code != CodeRequirement || got.Hint != "type this" {
		t.Errorf("got %+v", got)
	}
}

func FuzzRecv(f *testing.F) {
	f.Add([]byte{flagLast, '{', '}'})
	f.Add([]byte{flagMore, '{'})
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, packet []byte) {
		if len(packet) > packetSize+1 {
			return
		}
		a, b, err := Pair()
		if err != nil {
			t.Skip()
		}
		unix.Sendmsg(int(a.Fd()), packet, nil, nil, unix.MSG_NOSIGNAL)
		a.Close()
		c := NewConn(b)
		defer c.Close()
		if m, err := c.Recv(); err == nil {
			m.Close()
		}
	})
}

// TestIdleConnIsSmall: an idle connection holds no buffer. A runner has two connections per sandbox.
func TestIdleConnIsSmall(t *testing.T) {
	const n = 200
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range n {
		a, b := pair(t)
		received := make(chan struct{}, 1)
		p := NewPeer(a, func(m *Message) { m.Close(); received <- struct{}{} })
		go p.Serve()
		if err := b.Send(Message{Op: "event"}, nil, nil); err != nil {
			t.Fatal(err)
		}
		<-received
	}
	runtime.GC()
	runtime.GC() // the second collection empties the pool
	runtime.ReadMemStats(&after)
	if each := int64(after.HeapAlloc-before.HeapAlloc) / n; each > packetSize/4 {
		t.Errorf("%d bytes each", each)
	}
}

// TestLearn: Prewarm ignores values that cannot be encoded.
func TestLearn(t *testing.T) {
	Prewarm(nil, Message{}, make(chan int), func() {})
}

// TestReplyUnsendable: a caller whose reply cannot be sent gets the reason, and the connection continues.
func TestReplyUnsendable(t *testing.T) {
	a, b := pair(t)
	var callee *Peer
	callee = NewPeer(b, func(m *Message) {
		defer m.Close()
		if m.Op == "long" {
			callee.Reply(m, strings.Repeat("x", maxMessage), nil)
			return
		}
		callee.Reply(m, nil, nil)
	})
	caller := NewPeer(a, func(m *Message) { m.Close() })
	go callee.Serve()
	go caller.Serve()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := caller.Call(ctx, "long", nil, nil, nil); err == nil || !strings.Contains(err.Error(), ErrTooLong.Error()) {
		t.Errorf("err = %v, want %v", err, ErrTooLong)
	}
	if err := caller.Call(ctx, "short", nil, nil, nil); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestTooFewDescriptors sends more descriptors than may be opened, in either direction. That call fails, and the
// connection continues.
func TestTooFewDescriptors(t *testing.T) {
	for _, back := range []bool{false, true} {
		a, b := pair(t)
		files := Files{"x": os.Stdin, "y": os.Stdout, "z": os.Stderr}
		var callee *Peer
		callee = NewPeer(b, func(m *Message) {
			m.Close() // before the caller continues and counts descriptors
			if back {
				callee.Reply(m, nil, files)
				return
			}
			callee.Reply(m, nil, nil)
		})
		caller := NewPeer(a, func(m *Message) { m.Close() })
		go callee.Serve()
		go caller.Serve()
		sent := files
		if back {
			sent = nil
		}
		if err := caller.Call(t.Context(), "op", nil, sent, nil); err != nil {
			t.Fatal(err)
		}
		restore := need.Descriptors(t, 1)
		err := caller.Call(t.Context(), "op", nil, sent, nil)
		restore()
		// The kernel compares the descriptors that this user has on their way in all processes with the same limit.
		if err == nil || !strings.Contains(err.Error(), "too many open files") && !strings.Contains(err.Error(), unix.ETOOMANYREFS.Error()) {
			t.Errorf("back %t: %v", back, err)
		}
		if err := caller.Call(t.Context(), "op", nil, sent, nil); err != nil {
			t.Errorf("back %t, afterwards: %v", back, err)
		}
	}
}

// TestLongError: an error that quotes a word of megabytes arrives, with its beginning and its reason. Another side that does
// not bound its errors is bounded here.
func TestLongError(t *testing.T) {
	a, b := pair(t)
	word := strings.Repeat("\u0080", maxMessage/4) // each rune becomes seven bytes of JSON
	var callee *Peer
	callee = NewPeer(b, func(m *Message) {
		defer m.Close()
		if m.Op == "hostile" {
			long := strings.Repeat("é", maxMessage/8)
			b.Send(Message{ID: m.ID, Error: &Error{Code: CodeInvalid, Text: "x" + long, Hint: long}}, nil, nil)
			return
		}
		callee.Fail(m, Errorf(CodeInvalid, "find user %q: no such user", word))
	})
	caller := NewPeer(a, func(m *Message) { m.Close() })
	go callee.Serve()
	go caller.Serve()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var e *Error
	if err := caller.Call(ctx, "honest", nil, nil, nil); !errors.As(err, &e) || e.Code != CodeInvalid ||
		!strings.HasPrefix(e.Text, "find user ") || !strings.HasSuffix(e.Text, ": no such user") || len(e.Text) > maxText {
		t.Errorf("err = %.100v", err)
	}
	if err := caller.Call(ctx, "hostile", nil, nil, nil); !errors.As(err, &e) || len(e.Text) > maxText || len(e.Hint) > maxText ||
		!utf8.ValidString(e.Text) || !utf8.ValidString(e.Hint) {
		t.Errorf("err = %.100v", err)
	}
}
