package docker

import (
	"errors"
	"net/http/httptest"
	"testing"

	"demesne/runner"
	"demesne/session"
)

// TestRunEnds checks the calls that meet the end of a run: a start of a short command succeeds, a failed one has its reason, and a
// stop does not wait for the next run.
func TestRunEnds(t *testing.T) {
	s := &server{}
	c := &container{out: newJournal(true), state: state{status: running}}
	c.next = c.nextRun()
	p := c.live()
	close(p.started)
	s.ended(c, p, &session.RunResult{Result: &runner.Result{ExitCode: 3}}, nil)
	for range 100 {
		if err := p.begun(); err != nil {
			t.Fatalf("it ended: %v", err)
		}
	}
	if err := s.stop(httptest.NewRequest("POST", "/", nil), c, p); err != nil || p.code != 3 || c.live() != nil {
		t.Errorf("%v, exit code %d, %p goes on", err, p.code, c.live())
	}
	if w := httptest.NewRecorder(); s.stopContainer(w, httptest.NewRequest("POST", "/", nil), c) != nil || w.Code != 304 {
		t.Errorf("a second stop: %d", w.Code)
	}
	p, why := c.current(), errors.New("no such file")
	s.ended(c, p, nil, why)
	if err := p.begun(); !errors.Is(err, why) || c.snap().status != created {
		t.Errorf("%v, %s", err, c.snap().status)
	}
}

// TestRunAgain checks that a run which begins once the one before is shown as ended keeps its readers.
func TestRunAgain(t *testing.T) {
	s := &server{}
	for range 3000 {
		c := &container{out: newJournal(true), state: state{status: running}}
		c.out.open()
		c.next = c.nextRun()
		p := c.live()
		close(p.started)
		go s.ended(c, p, &session.RunResult{Result: &runner.Result{}}, nil)
		for c.snap().status == running {
		}
		c.out.open() // as start does
		read := c.out.reader(false, true)
		<-p.done
		c.out.write(stdout, []byte("a"))
		read.take(true)
		c.out.mu.Lock()
		closed := c.out.closed
		c.out.mu.Unlock()
		if closed {
			t.Fatal("the end of the run before ended the output of the next one")
		}
	}
}
