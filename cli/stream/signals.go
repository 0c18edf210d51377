package stream

import (
	"context"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"

	"demesne/internal/procself"
	"demesne/session"
)

// forwarded lists the signals that are passed on to the command. Ctrl-Z is not among them: it stops this
// program, and the command keeps running.
var forwarded = []os.Signal{
	unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
}

// ExitSignal plus a signal's number is the exit code of a command that the signal ended.
const ExitSignal = 128

// Signals handles the signals that this program receives:
//
//	before the command runs   INT, TERM, HUP, QUIT give up, exit 128+n;
//	                          the third INT or TERM exits even if the runner is starting a command
//	while it runs             forwarded to its process group;
//	                          the second INT or TERM kills it, the third exits without waiting
//	once it has ended         INT, TERM, HUP, QUIT exit without waiting for output to be read
type Signals struct {
	Ctx    context.Context // cancelled when the caller gives up before the command runs
	cancel context.CancelFunc
	ch     chan os.Signal
	term   *Terminal
	quit   *procself.SIGQUITAction

	Watched chan struct{} // closed once handlers are installed: until then signals have their default actions

	mu    sync.Mutex
	early unix.Signal // the signal that cancelled ctx
	proc  session.Process
	kill  func() // gives SIGKILL time to act, then stops the whole sandbox
	asked int    // INTs and TERMs received so far
	ended bool
}

// WatchSignals installs the signal handlers in the background: signal.Notify hands each signal to another
// thread and waits for it, 0.5 ms in all. A caller that would leave something behind when killed must wait for
// watched. Signals that matter only to a terminal are omitted without one.
func WatchSignals(quit *procself.SIGQUITAction, term *Terminal) *Signals {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Signals{Ctx: ctx, cancel: cancel, ch: make(chan os.Signal, 16), term: term, quit: quit, Watched: make(chan struct{})}
	// SIGPIPE is caught so that a closed stderr does not end this program too early.
	set := []os.Signal{unix.SIGPIPE}
	if term.Fd >= 0 {
		set = append(set, unix.SIGWINCH, unix.SIGCONT)
	}
	for _, sig := range forwarded {
		// A SIGHUP that nohup ignores stays ignored.
		if !signal.Ignored(sig) {
			set = append(set, sig)
		}
	}
	go s.loop(set)
	return s
}

// SignalsWatched is WatchSignals without a terminal; it returns once the handlers are installed.
func SignalsWatched(quit *procself.SIGQUITAction) *Signals {
	s := WatchSignals(quit, &Terminal{Fd: -1})
	<-s.Watched
	return s
}

// loop handles signals until the program exits.
func (s *Signals) loop(set []os.Signal) {
	defer s.term.Restore()
	signal.Notify(s.ch, set...)
	s.quit.Restore()
	close(s.Watched)
	for sig := range s.ch {
		s.Take(sig.(unix.Signal))
	}
}

func (s *Signals) Take(sig unix.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(sig)
}

func (s *Signals) take(sig unix.Signal) {
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

// Insist is Take, except that it has no effect once the command has ended.
func (s *Signals) Insist(sig unix.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.take(sig)
	}
}

// giveUp handles a signal that arrives before there is a command. If the runner is already starting a command,
// Attach passes the signal on to it.
func (s *Signals) giveUp(sig unix.Signal, deadly bool) {
	if deadly {
		s.asked++
	}
	if s.asked > 2 {
		s.exit(sig)
	}
	s.early = sig
	s.cancel()
}

// insist handles an INT or TERM while the command runs; each has a stronger effect than the one before.
func (s *Signals) insist(sig unix.Signal) {
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

// exit ends this program. Its connection to the runner closes, which ends a one-shot sandbox.
func (s *Signals) exit(sig unix.Signal) {
	s.term.Restore()
	os.Exit(ExitSignal + int(sig))
}

// forward does not wait: a slow runner must not delay the next signal. It ignores the error of a command that
// has ended meanwhile.
func (s *Signals) forward(sig unix.Signal) {
	p := s.proc
	go p.Signal(sig)
}

func (s *Signals) resize() {
	if p := s.proc; p != nil && s.term.Fd >= 0 && p.Terminal() != nil {
		go p.Resize(s.term.Size())
	}
}

// Attach sets the process that receives signals from now on.
func (s *Signals) Attach(p session.Process, kill func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc, s.kill, s.ended = p, kill, false
	// Deliver a signal that arrived while the runner was starting the command, too late to cancel the start.
	switch sig := s.early; {
	case s.asked > 0:
		s.insist(sig)
	case sig != 0:
		s.forward(sig)
	}
}

// GaveUp returns the exit code if the caller gave up before the command ran, or else 0.
func (s *Signals) GaveUp() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.early == 0 {
		return 0
	}
	return ExitSignal + int(s.early)
}

// Interrupted reports whether an INT or TERM arrived.
func (s *Signals) Interrupted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked > 0 || s.early != 0
}

// Release records that the command has ended.
func (s *Signals) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

// Stop ends the handling of signals. Without it, the handler of a command that has ended would end this program.
func (s *Signals) Stop() {
	<-s.Watched
	signal.Stop(s.ch)
	close(s.ch)
}
