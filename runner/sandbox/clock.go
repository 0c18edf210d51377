package sandbox

import (
	"fmt"
	"os"
	"time"

	"demesne/runner"
)

// unopened is how long a sandbox survives whose creator died before another caller learned its id.
const unopened = 30 * time.Second

// lease is the part of a sandbox that says when it expires. The sandbox's mu guards its fields after commands.
type lease struct {
	*state
	persistent *persistent
	commands   *commands

	expires time.Time
	ends    time.Time   // expires, or sooner: see bound
	timer   *time.Timer // fires at ends
	maker   Caller      // the only caller that knows the sandbox, until it is opened or used; nil: others know it
}

// start starts the timer that removes the sandbox.
func (l *lease) start(remove func(why string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renew()
	l.timer = time.AfterFunc(time.Until(l.ends), func() {
		if l.over() {
			remove("its time to live ended")
		}
	})
	l.undo.add(func() { l.timer.Stop() })
}

// over reports whether the time is over, and otherwise sets the timer again.
func (l *lease) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.due()
	if left > 0 {
		l.timer.Reset(left)
	}
	return left <= 0
}

// due returns the time that is left. A running command counts as a use. mu is held.
func (l *lease) due() time.Duration {
	switch {
	case len(l.commands.running) > 0:
		l.renew()
	case l.maker != nil && !l.maker.Left():
		l.bound()
	}
	return time.Until(l.ends)
}

// used records a use by a caller that knows the sandbox. mu is held.
func (l *lease) used() {
	l.maker = nil
	l.renew()
}

// renew postpones the expiry. mu is held.
func (l *lease) renew() {
	if l.spec.Lifetime != runner.Persistent || l.ending {
		return
	}
	l.expires = expiry(l.spec, l.created, time.Now())
	l.bound()
}

// bound sets when an unused sandbox ends. If only its maker knows it, that is soon; while the maker is connected, the
// timer postpones it again and again. mu is held.
func (l *lease) bound() {
	l.ends = l.expires
	if soon := time.Now().Add(unopened); l.maker != nil && soon.Before(l.ends) {
		l.ends = soon
	}
	if l.stay {
		if err := l.persistent.dir.Renew(l.ends); err != nil {
			fmt.Fprintf(os.Stderr, "demesne-runner: sandbox %s: renew: %v\n", l.id, err)
		}
	}
}

// unknown reports whether only its maker knows the sandbox.
func (l *lease) unknown() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.maker != nil
}

// expiry returns when a sandbox that is used now expires. It is pure.
func expiry(spec runner.Spec, created, now time.Time) time.Time {
	ttl := time.Duration(spec.TTL)
	if ttl <= 0 {
		ttl = runner.Longest
	}
	until := now.Add(ttl)
	if age := time.Duration(spec.MaxAge); age > 0 && created.Add(age).Before(until) {
		return created.Add(age)
	}
	return until
}

// idle is the part of a sandbox that pauses its processes while it is unused. The sandbox's mu guards its fields after
// init.
type idle struct {
	*state
	commands *commands
	init     *pid1

	timer  *time.Timer       // fires when the sandbox is to be paused
	paused *stoppedProcesses // nil: not paused
}

// rest starts the timer that pauses an unused sandbox. mu is held.
func (i *idle) rest() {
	after := time.Duration(i.spec.PauseIdle)
	if after <= 0 || i.ending || len(i.commands.running) > 0 || i.machine.minimal() {
		return
	}
	if i.timer == nil {
		i.timer = time.AfterFunc(after, i.pause)
		return
	}
	i.timer.Reset(after)
}

// pause pauses the processes that the commands left. If that fails, it tries again later.
func (i *idle) pause() {
	i.starting.Lock()
	defer i.starting.Unlock()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ending || len(i.commands.running) > 0 || i.paused != nil {
		return
	}
	p, err := stopProcesses(i.init.pid)
	if err != nil {
		fmt.Fprintf(os.Stderr, "demesne-runner: sandbox %s: %v\n", i.id, err)
		i.rest()
		return
	}
	i.paused = p
}

// wake resumes the processes, before a command starts or when the sandbox ends. mu is held.
func (i *idle) wake() {
	if i.timer != nil {
		i.timer.Stop()
	}
	if i.paused != nil {
		i.paused.Resume()
		i.paused = nil
	}
}
