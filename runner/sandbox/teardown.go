package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"demesne/runner"
	"demesne/runner/grants"
)

// Remove ends s and removes its files.
func (s *Sandbox) Remove(why string) {
	s.mu.Lock()
	if !s.ending {
		s.stay = false
	}
	s.mu.Unlock()
	s.End(why)
}

// Stop ends s and keeps its files. It asks the processes to end, and kills those that are left after grace.
func (s *Sandbox) Stop(grace time.Duration) error {
	if err := s.files.persistent.keeps("stop sandbox"); err != nil {
		return err
	}
	if grace > 0 && s.askToEnd() {
		waitAlone(s.init.pid, grace)
	}
	s.End("stopped")
	return nil
}

// terminate ends s for a reason that the results of its commands report.
func (s *Sandbox) terminate(reason runner.Reason, detail string) {
	s.mu.Lock()
	s.judge(reason, detail)
	s.mu.Unlock()
	s.End(detail)
}

// End tears s down and forgets it. Its files stay if they are kept.
func (s *Sandbox) End(why string) {
	if s.teardown(why) {
		forget(s)
	}
}

// teardown ends every process and then removes what they used. It returns when nothing is left, and reports whether
// this call did the work.
func (s *Sandbox) teardown(why string) bool {
	<-s.built
	s.mu.Lock()
	if s.ending {
		s.mu.Unlock()
		<-s.finished
		return false
	}
	s.ending = true
	s.judge(runner.Lost, why)
	s.mu.Unlock()
	s.cleanup()
	return true
}

// cleanup is the second half of teardown, for the caller that has set ending.
func (s *Sandbox) cleanup() {
	s.undo.run()
	release(s)
	if s.owner != nil {
		s.owner.Disown(s.id)
	}
	s.mu.Lock()
	left := s.commands.running
	s.commands.running = nil
	s.idle.wake()
	s.mu.Unlock()
	for _, x := range left {
		x.finish(nil)
		defer func() { go x.report() }() // once s is done
	}
	close(s.finished)
}

// Abandon tears down a sandbox that no caller knows.
func (s *Sandbox) Abandon() {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	close(s.built)
	s.undo.run()
	release(s)
	s.late.run()
	close(s.finished)
}

// forget takes the last steps after the end of s, when the results of its commands are sent.
func forget(s *Sandbox) {
	s.late.run()
	if !s.Stays() {
		s.machine.History.Ended(s.Info())
	}
	s.env.Forgotten(s)
}

// reaperPatience bounds how long the end of a sandbox waits for the reaper.
const reaperPatience = 2 * time.Second

// release ends the grants of the sandbox. The reaper, which has the caller's rights, removes sockets that the
// runner may not remove.
func release(s *Sandbox) {
	run, name := s.machine.Boot.RunDir, cmp.Or(s.spec.Granted, s.files.binds.granted)
	if name == "" {
		return
	}
	if s.link.net.SocketsLeft() && grants.Over(run, name) == nil {
		s.machine.askReaper()
		for end := time.Now().Add(reaperPatience); grants.Pending(run, name) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		return
	}
	grants.Remove(run, name)
}

// leave runs after the last process has ended. It closes the directory or removes it.
func (s *Sandbox) leave() {
	var err error
	if s.Stays() {
		err = errors.Join(s.recordEnd(), s.files.persistent.dir.Close())
	} else {
		err = s.files.persistent.dir.Remove()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "demesne-runner: sandbox %s: %v\n", s.id, err)
	}
}

// recordEnd writes the last result. It writes nothing for a sandbox that has no result and was not quiet.
func (s *Sandbox) recordEnd() error {
	s.mu.Lock()
	last := s.commands.last
	s.mu.Unlock()
	if last == nil && !s.files.persistent.quiet {
		return nil
	}
	return s.record()
}
