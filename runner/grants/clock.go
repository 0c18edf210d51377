package grants

import (
	"sync"

	"golang.org/x/sys/unix"
)

// Clock counts how often the machine's clock was set (timerfd_create(2), TFD_TIMER_CANCEL_ON_SET).
type Clock struct {
	mu  sync.Mutex
	fd  int // negative: the count is unknown
	set int
}

// NewClock returns a Clock that starts counting now.
func NewClock() *Clock {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return &Clock{fd: -1}
	}
	far := &unix.ItimerSpec{Value: unix.Timespec{Sec: 1 << 40}}
	if err := unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, far, nil); err != nil {
		unix.Close(fd)
		return &Clock{fd: -1}
	}
	return &Clock{fd: fd}
}

// Inherited returns a Clock for the descriptor of another process. If fd is negative, every call of Set returns
// another number.
func Inherited(fd int) *Clock { return &Clock{fd: fd} }

// Set returns the number of times the clock was set. If that is unknown, every call returns another number.
func (c *Clock) Set() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		var buf [8]byte
		_, err := unix.Read(c.fd, buf[:])
		switch err {
		case unix.EAGAIN:
			return c.set
		case unix.EINTR:
			continue
		}
		c.set++
		if err != unix.ECANCELED {
			return c.set
		}
	}
}
