package fsutil

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Rest returns a reader for a pipe or terminal whose read deadline says that the writer has ended, while other processes may
// still hold it. Once the deadline has passed, it returns what f holds at that moment, and then [os.ErrDeadlineExceeded]. f.Read
// would return that at once: a reader that had no processor in time would lose what the writer wrote.
func Rest(f *os.File) io.Reader { return &rest{f: f} }

type rest struct {
	f    *os.File
	late bool // the deadline has passed
	left int  // bytes that f held then and that were not read
}

func (r *rest) Read(b []byte) (n int, err error) {
	if !r.late {
		if n, err = r.f.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		r.late = true
		r.control(func(fd int) { r.left, _ = unix.IoctlGetInt(fd, unix.TIOCINQ) })
	}
	if r.left == 0 {
		return 0, os.ErrDeadlineExceeded
	}
	r.control(func(fd int) {
		for n, err = -1, unix.EINTR; err == unix.EINTR; {
			n, err = unix.Read(fd, b[:min(r.left, len(b))])
		}
	})
	if n <= 0 {
		r.left = 0
		return 0, os.ErrDeadlineExceeded
	}
	r.left -= n
	return n, nil
}

func (r *rest) control(do func(fd int)) {
	if c, err := r.f.SyscallConn(); err == nil {
		c.Control(func(fd uintptr) { do(int(fd)) })
	}
}
