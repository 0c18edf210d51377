package main

import (
	"context"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"

	"demesne/internal/sigquit"
)

// forwarded are the signals a command gets in the caller's stead. Ctrl-Z is not
// among them: it stops this program, and the command runs on.
var forwarded = []os.Signal{
	unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
}

// signals owns what the caller's signals do:
//
//	before the command runs   INT, TERM, HUP, QUIT give up, exit 128+n;
//	                          the third INT or TERM does not wait for a command that is being started
//	while it runs             forwarded to its process group;
//	                          the second INT or TERM kills, the third does not wait
//	once it has ended         INT, TERM, HUP, QUIT do not wait for output to be read
type signals struct {
	ctx    context.Context // ends when the caller gives up before the command runs
	cancel context.CancelFunc
	ch     chan os.Signal
	term   *terminal
	quit   *sigquit.Action

	watched chan struct{} // closed once they are: until then each does what it does to any program

	mu    sync.Mutex
	early unix.Signal // what ended ctx
	proc  process
	kill  func() // waits for SIGKILL to do its work, then does more
	asked int    // INTs and TERMs so far
	ended bool
}

// watchSignals starts to watch, beside what else there is to do: the Go runtime tells a thread of
// each signal and waits for its answer, 0.5 ms for all. Who leaves something behind when it is
// killed waits until they are watched. Those that only matter to a terminal are left out where
// there is none.
func (a *app) watchSignals(term *terminal) *signals {
	ctx, cancel := context.WithCancel(context.Background())
	s := &signals{ctx: ctx, cancel: cancel, ch: make(chan os.Signal, 16), term: term, quit: a.quit, watched: make(chan struct{})}
	// SIGPIPE is caught so that a closed stderr does not end this program too early.
	set := []os.Signal{unix.SIGPIPE}
	if term.fd >= 0 {
		set = append(set, unix.SIGWINCH, unix.SIGCONT)
	}
	for _, sig := range forwarded {
		// nohup's SIGHUP stays ignored.
		if !signal.Ignored(sig) {
			set = append(set, sig)
		}
	}
	go s.loop(set)
	return s
}

// signalsWatched is the same for a program that is no terminal's, when they are watched.
func (a *app) signalsWatched() *signals {
	s := a.watchSignals(&terminal{fd: -1})
	<-s.watched
	return s
}

// loop ends with the program.
func (s *signals) loop(set []os.Signal) {
	defer s.term.restore()
	signal.Notify(s.ch, set...)
	s.quit.Restore()
	close(s.watched)
	for sig := range s.ch {
		s.take(sig.(unix.Signal))
	}
}

func (s *signals) take(sig unix.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	deadly := sig == unix.SIGINT || sig == unix.SIGTERM
	leave := deadly || sig == unix.SIGHUP || sig == unix.SIGQUIT
	switch {
	case sig == unix.SIGPIPE:
	case sig == unix.SIGCONT:
		s.term.resume()
		s.resize()
	case sig == unix.SIGWINCH:
		s.resize()
	case s.proc == nil:
		if leave {
			s.giveUp(sig, deadly)
		}
	case s.ended:
		if leave {
			s.exit(sig)
		}
	case deadly:
		s.asked++
		s.insist(sig)
	default:
		s.forward(sig)
	}
}

// giveUp is for a signal before there is a command to have it. One that the runner is starting has it next.
func (s *signals) giveUp(sig unix.Signal, deadly bool) {
	if deadly {
		s.asked++
	}
	if s.asked > 2 {
		s.exit(sig)
	}
	s.early = sig
	s.cancel()
}

// insist is for an INT or a TERM, each stronger than the one before.
func (s *signals) insist(sig unix.Signal) {
	switch s.asked {
	case 1:
		s.forward(sig)
	case 2:
		s.forward(unix.SIGKILL)
		go s.kill()
	default:
		s.exit(sig)
	}
}

// exit ends this program; its end of the connection closes, which is the end of a
// one-shot sandbox.
func (s *signals) exit(sig unix.Signal) {
	s.term.restore()
	os.Exit(exitSignal + int(sig))
}

// forward does not wait: a runner that is slow to answer must not keep the next
// signal from being taken. A command that has ended meanwhile is no error.
func (s *signals) forward(sig unix.Signal) {
	p := s.proc
	go p.Signal(sig)
}

func (s *signals) resize() {
	if p := s.proc; p != nil && s.term.fd >= 0 && p.Terminal() != nil {
		go p.Resize(s.term.size())
	}
}

// attach names the command that signals go to from now on.
func (s *signals) attach(p process, kill func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc, s.kill = p, kill
	// One that came while the command was being started, too late to keep it from that.
	switch sig := s.early; {
	case s.asked > 0:
		s.insist(sig)
	case sig != 0:
		s.forward(sig)
	}
}

// gaveUp returns the exit code for a caller that did not want to wait, or 0.
func (s *signals) gaveUp() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.early == 0 {
		return 0
	}
	return exitSignal + int(s.early)
}

// release says that the command has ended.
func (s *signals) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}
