package stream

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	chunk    = 1 << 20   // bytes of one splice, and the size that a busy pipe grows to
	copySize = 256 << 10 // bytes of one read
)

// Pump copies from one descriptor to another until the source ends.
//
// Between two pipes it splices, which moves pages instead of copying them. It never splices to or from any
// other kind of file: the kernel would hold the pipe's lock during the read or write of that file. On a stopped
// terminal or a stalled network mount that takes forever. A command that touches its end of the pipe meanwhile
// would wait for the lock, and not even SIGKILL would end it.
type Pump struct {
	src   *os.File
	dst   *os.File // nil: collect in keep
	keep  *tail
	edit  func([]byte) ([]byte, error) // nil: copy unchanged
	floor Floor                        // acquired for each write
	over  <-chan struct{}              // when it is closed, writes no longer wait for floor
	first func()                       // called once, after the first bytes were copied
	end   func()                       // called when the source has ended or the destination is closed

	rc      syscall.RawConn
	polled  bool // src is non-blocking and in Go's poller
	splices bool
	buf     []byte
	last    byte // last byte copied
	moved   atomic.Int64
	busy    atomic.Bool // bytes were read, and not yet written and counted
	Done    chan struct{}
	err     error // reason for an early end; read it after done is closed
}

// start runs the pump on a goroutine that ends with the source or with the process. A caller that neither
// writes nor reads can block it indefinitely.
func (p *Pump) start() {
	p.Done = make(chan struct{})
	p.splices = p.dst != nil && p.edit == nil && p.floor == nil && isPipe(p.src) && isPipe(p.dst)
	p.rc, p.err = p.src.SyscallConn()
	if p.err != nil {
		close(p.Done)
		return
	}
	go func() {
		defer close(p.Done)
		if p.end != nil {
			defer p.end() // also in a panic: it may restore the terminal
		}
		p.err = p.run()
	}()
}

func (p *Pump) run() error {
	for grown := false; ; {
		n, err := p.step()
		switch {
		case p.splices && (err == unix.EINVAL || err == unix.ENOSYS || err == unix.EPERM): // not supported between these two, or not at all
			p.splices = false
			continue
		case err == unix.EIO && !p.splices: // a terminal whose other end is closed
			return nil
		case err != nil:
			return err
		case n == 0:
			return nil
		}
		if p.moved.Add(n) == n && p.first != nil {
			p.first()
		}
		p.busy.Store(false)
		if !grown && p.moved.Load() > chunk {
			grown = true
			p.grow()
		}
	}
}

func (p *Pump) step() (int64, error) {
	if p.splices {
		return p.splice()
	}
	return p.copy()
}

// splice moves the available data. EAGAIN does not say which end would block.
func (p *Pump) splice() (n int64, err error) {
	dst := FD(p.dst)
	rerr := p.rc.Read(func(fd uintptr) bool {
		for {
			p.busy.Store(true)
			n, err = unix.Splice(int(fd), nil, dst, nil, chunk, unix.SPLICE_F_NONBLOCK)
			if err != unix.EAGAIN && err != unix.EINTR {
				return true
			}
			p.busy.Store(false)
			switch {
			case err == unix.EINTR:
			case ready(int(fd), unix.POLLIN):
				await(dst, unix.POLLOUT)
			case p.polled:
				return false
			default:
				await(int(fd), unix.POLLIN)
			}
		}
	})
	if err == nil {
		err = rerr
	}
	return n, err
}

func (p *Pump) copy() (int64, error) {
	if p.buf == nil {
		p.buf = make([]byte, copySize)
	}
	var n int
	var err error
	rerr := p.rc.Read(func(fd uintptr) bool {
		for {
			if !p.polled {
				await(int(fd), unix.POLLIN)
			}
			p.busy.Store(true)
			n, err = unix.Read(int(fd), p.buf)
			if err != unix.EAGAIN && err != unix.EINTR {
				return true
			}
			p.busy.Store(false)
			if err == unix.EAGAIN && p.polled {
				return false
			}
		}
	})
	if err == nil {
		err = rerr
	}
	if err != nil || n == 0 {
		return 0, err
	}
	p.last = p.buf[n-1]
	if p.edit == nil {
		return int64(n), p.put(p.buf[:n])
	}
	edited, err := p.edit(p.buf[:n])
	return int64(n), errors.Join(p.put(edited), err)
}

func (p *Pump) put(b []byte) error {
	if p.dst == nil {
		p.keep.add(b)
		return nil
	}
	defer p.floor.Take(p.over)()
	if err := WriteAll(FD(p.dst), b); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(p.dst.Name()), err)
	}
	return nil
}

// grow enlarges this program's pipe once it has proved busy. Idle pipes stay small, because the kernel bounds
// the total of a user's pipes (pipe-user-pages-soft, pipe(7)).
func (p *Pump) grow() {
	for _, f := range []*os.File{p.src, p.dst} {
		if f != nil && f.Name() == pipeName {
			unix.FcntlInt(uintptr(FD(f)), unix.F_SETPIPE_SZ, chunk)
		}
	}
}

// drained reports whether everything written to the source so far has been copied.
func (p *Pump) drained() bool {
	select {
	case <-p.Done:
		return true
	default:
	}
	left := 1
	// The order matters: data leaves the pipe only after busy is set.
	err := p.rc.Control(func(fd uintptr) { left, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return err == nil && left == 0 && !p.busy.Load()
}

// pending reports whether the source has data to read or is at its end.
func (p *Pump) pending() (yes bool) {
	p.rc.Control(func(fd uintptr) { yes = ready(int(fd), unix.POLLIN) })
	return yes
}

// CopyError returns the error of a pump that ended early. It returns nil while the pump runs, and if the reader
// closed the destination.
func (p *Pump) CopyError() error {
	select {
	case <-p.Done:
	default:
		return nil
	}
	if errors.Is(p.err, unix.EPIPE) || errors.Is(p.err, os.ErrClosed) {
		return nil
	}
	return p.err
}
