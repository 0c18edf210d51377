package proxy

import (
	"io"
	"net"
	"sync"
	"syscall"
	"unsafe"
)

// What is moved by hand, and what is spliced before the next piece is tried by hand.
const (
	pieceSize = 4 << 10
	spliced   = 1 << 20
)

// buffers are for pieces: a tunnel that is idle keeps none.
var buffers = sync.Pool{New: func() any { return new([pieceSize]byte) }}

// relay copies from src to dst until the end. Pieces that do not fill a buffer are read and
// written, so that requests and answers take neither a pipe's descriptors nor its system
// calls; of what fills one the rest is spliced, a stretch at a time.
func relay(dst, src *net.TCPConn) (n int64, err error) {
	p, err := newPiece(dst, src)
	for err == nil {
		var got int
		got, err = p.move()
		n += int64(got)
		switch {
		case err != nil || got == 0:
			return n, err
		case got == pieceSize:
			var more int64
			more, err = io.Copy(dst, &io.LimitedReader{R: src, N: spliced})
			if n += more; more < spliced {
				return n, err
			}
		}
	}
	return n, err
}

// piece is what is moved by hand. Its system calls do not tell Go's scheduler: the sockets do not
// block, and the scheduler would take a call that wakes the reader at the other end for one
// that does, and give its processor to another thread. That costs a third of a request's
// processor time, and a thread's wake-up of each.
type piece struct {
	src, dst    syscall.RawConn
	read, write func(fd uintptr) bool // methods, once

	buf     *[pieceSize]byte
	n, sent int           // of buf, read and written
	err     syscall.Errno // of either
}

func newPiece(dst, src *net.TCPConn) (p *piece, err error) {
	p = &piece{}
	p.read, p.write = p.tryRead, p.tryWrite
	if p.src, err = src.SyscallConn(); err == nil {
		p.dst, err = dst.SyscallConn()
	}
	return p, err
}

// move waits for something and passes it on. 0 without an error is the end.
func (p *piece) move() (n int, err error) {
	if err := p.src.Read(p.read); err != nil {
		return 0, err
	}
	defer func() { buffers.Put(p.buf) }()
	if p.sent = 0; p.n > 0 {
		if err := p.dst.Write(p.write); err != nil {
			return p.sent, err
		}
	}
	if p.err != 0 {
		return p.sent, p.err
	}
	return p.sent, nil
}

// tryRead says whether there was something, which is in a buffer then: bytes, the end, or an
// error.
func (p *piece) tryRead(fd uintptr) bool {
	p.buf = buffers.Get().(*[pieceSize]byte)
	p.n, p.err = transfer(syscall.SYS_READ, fd, p.buf[:])
	if p.err == syscall.EAGAIN {
		buffers.Put(p.buf)
		return false
	}
	return true
}

// tryWrite says whether all of it was written, or never will be.
func (p *piece) tryWrite(fd uintptr) bool {
	for p.sent < p.n {
		n, e := transfer(syscall.SYS_WRITE, fd, p.buf[p.sent:p.n])
		if e == syscall.EAGAIN {
			return false
		}
		if p.err = e; e != 0 {
			return true
		}
		p.sent += n
	}
	return true
}

// transfer is read(2) or write(2) on a socket that does not block. b is not empty.
func transfer(call, fd uintptr, b []byte) (n int, e syscall.Errno) {
	for {
		r, _, e := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		switch e {
		case 0:
			return int(r), 0
		case syscall.EINTR:
		default:
			return 0, e
		}
	}
}
