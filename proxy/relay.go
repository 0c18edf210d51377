package proxy

import (
	"io"
	"net"
	"sync"
	"syscall"
	"unsafe"
)

// pieceSize is the most that one read(2) and write(2) copy. spliced is how much is spliced before relay reads
// again.
const (
	pieceSize = 4 << 10
	spliced   = 1 << 20
)

// buffers holds buffers for pieces, so that an idle tunnel holds none.
var buffers = sync.Pool{New: func() any { return new([pieceSize]byte) }}

// relay copies from src to dst until the end. It reads and writes pieces that do not fill a buffer, which saves a
// pipe's descriptors and system calls for requests and answers. After a full piece it splices.
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

// piece calls read(2) and write(2) without telling Go's scheduler. The sockets are non-blocking, but the
// scheduler could take a call that wakes the reader at the other end for a blocking one. It would then hand its
// processor to another thread, which costs a third of a request's processor time and one thread wake-up each.
type piece struct {
	src, dst    syscall.RawConn
	read, write func(fd uintptr) bool // method values, allocated once

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

// move waits for a piece and forwards it. It returns 0 without an error at the end.
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

// tryRead reports whether reading returned: bytes, the end, or an error. It then holds a buffer.
func (p *piece) tryRead(fd uintptr) bool {
	p.buf = buffers.Get().(*[pieceSize]byte)
	p.n, p.err = transfer(syscall.SYS_READ, fd, p.buf[:])
	if p.err == syscall.EAGAIN {
		buffers.Put(p.buf)
		return false
	}
	return true
}

// tryWrite reports whether everything was written or writing failed.
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

// transfer is read(2) or write(2) on a non-blocking socket. b must not be empty.
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
