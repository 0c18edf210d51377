package code

import (
	"fmt"
	"syscall"
	"time"

	"demesne/kernels"
	"demesne/runner"
)

// Death is the error of a session whose kernel has ended. Its variables are lost; the sandbox's files remain until the
// session is closed, unless the sandbox was removed.
type Death struct {
	Reason string // a few words, such as "out of memory"
	hint   string
}

// Error returns "CONTAINER_DIED: " and the reason, which models know.
func (d *Death) Error() string { return "CONTAINER_DIED: " + d.Reason }

// Hint says what to do next.
func (d *Death) Hint() string { return d.hint }

// Is makes a Death a kernels.ErrDead.
func (d *Death) Is(err error) bool { return err == kernels.ErrDead }

const renew = "its variables are lost: make a new session"

func stuck() *Death {
	return &Death{"timed out: the code did not end after an interrupt, and was killed", renew + ", and split the work or raise the timeout"}
}

func restarted() *Death {
	return &Death{"restarted", "a new kernel runs without the old one's variables"}
}
func stopped() *Death { return &Death{"the session was stopped", "make a new session"} }

// endGrace is how long a kernel whose channel has ended may take to end itself.
const endGrace = 2 * time.Second

// Death returns how the kernel ended, or nil if it lives.
func (c *Session) Death() *Death {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.death
}

// EndOf waits for the end of a kernel of the session, and returns how it ended.
func (c *Session) EndOf(k *kernels.Running) *Death {
	select {
	case <-k.Ended():
	case <-k.Done():
	}
	return c.died(k, nil)
}

// died records the death of a kernel, and kills what is left of it. It returns the first reason that was recorded. If why is
// nil, the reason is the end of the kernel's process.
func (c *Session) died(k *kernels.Running, why *Death) *Death {
	if why == nil {
		select {
		case <-k.Ended():
			why = deathOf(k.Result())
		case <-time.After(endGrace):
			why = &Death{"the kernel sent an invalid message, and was killed", renew}
		}
	}
	c.mu.Lock()
	first := c.kernel == k && c.death == nil
	if first {
		c.death = why
	} else if c.death != nil {
		why = c.death
	}
	c.mu.Unlock()
	if first {
		k.Kill()
	}
	return why
}

// deathOf returns why a kernel's process ended; r is nil if the sandbox was removed.
func deathOf(r *runner.Result) *Death {
	if r == nil {
		return gone()
	}
	switch r.Reason {
	case runner.OOM:
		return &Death{"out of memory", renew + " with a higher memory limit, or handle the data in parts"}
	case runner.DiskFull:
		return &Death{"the disk limit", renew + " with a higher disk limit, or write less"}
	case runner.PIDLimit:
		return &Death{"the limit on processes", renew + ", and start fewer processes"}
	case runner.TimedOut:
		return &Death{"timed out", renew}
	case runner.Lost:
		return gone()
	case runner.Exited:
		return &Death{fmt.Sprintf("exited with status %d", r.ExitCode), renew + "; code that calls os._exit or its like ends the session"}
	}
	return &Death{signalled(r), renew}
}

func gone() *Death {
	return &Death{"the sandbox is gone", "its variables and files are lost: make a new session"}
}

// signalled describes a death by a signal.
func signalled(r *runner.Result) string {
	word := map[syscall.Signal]string{
		syscall.SIGKILL: "killed (SIGKILL, 137)", syscall.SIGSEGV: "crashed: segmentation fault (SIGSEGV, 139)",
		syscall.SIGTERM: "terminated (SIGTERM, 143)", syscall.SIGABRT: "crashed: aborted (SIGABRT, 134)",
	}[syscall.Signal(r.Signal)]
	if word == "" {
		word = fmt.Sprintf("ended by signal %d (%d)", r.Signal, r.ExitCode)
	}
	return word
}
