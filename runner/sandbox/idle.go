package sandbox

import (
	"fmt"
	"os"
	"time"

	"demesne/runner/pause"
)

// idle is the part of a sandbox that pauses its processes while it is unused. The sandbox's mu guards its fields after
// init.
type idle struct {
	*state
	commands *commands
	init     *pid1

	timer  *time.Timer   // fires when the sandbox is to be paused
	paused *pause.Paused // nil: not paused
}

// rest starts the timer that pauses an unused sandbox. mu is held.
func (i *idle) rest() {
	after := time.Duration(i.spec.PauseIdle)
	if after <= 0 || i.ending || len(i.commands.running) > 0 || i.on.minimal() {
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
	p, err := pause.Pause(i.init.pid)
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
