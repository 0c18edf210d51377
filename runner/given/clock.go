package given

import (
	"sync"

	"golang.org/x/sys/unix"
)

// Clock says how often the clock of the machine was set, to earlier or later (timerfd_create(2), TFD_TIMER_CANCEL_ON_SET).
type Clock struct {
	mu  sync.Mutex
	fd  int // less than 0: it is not known
	set int
}

// NewClock counts from now on.
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

// Inherited is a clock that another process made. With a descriptor less than 0 every answer differs.
func Inherited(fd int) *Clock { return &Clock{fd: fd} }

// Set is how often the clock was set. Where that is not known, each answer is another one.
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
