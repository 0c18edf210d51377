package selftest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// facts tells probes about the canaries.
type facts struct {
	Canary, Dir string // a file with Secret, and a directory that the user may write
	Secret      string
	Path        string   // a unix socket's path
	Abstract    string   // an abstract unix socket's name
	TCP, UDP    int      // ports on every address of this machine
	Address     string   // an address of this machine other than the loopback; may be empty
	Resolver    string   // the machine's name server; may be empty
	Link        string   // the hardware address of an interface; may be empty
	PID         int      // a process of the user
	Started     string   // its start time, in ticks since boot
	Key         int      // serial of a key in the session keyring; 0 without one
	Memory      int      // id of a System V shared memory segment
	Shared      string   // a file in /dev/shm
	Variable    string   // a variable of the caller with Secret
	Scarce      bool     // a bomb could harm other programs
	Missing     []string // titles of probes for which this machine has no file
}

// verdict says how an attempt ended.
type verdict string

const (
	contained     verdict = "contained"
	escaped       verdict = "not contained"
	notApplicable verdict = "not applicable"
)

// outcome is the line of one probe.
type outcome struct {
	Case    string  `json:"case"`
	Title   string  `json:"title"`
	Verdict verdict `json:"verdict"`
	Why     string  `json:"why"`
}

// probe is one attempt. try returns nil if the attack succeeded, and else what stopped it.
type probe struct {
	id, title string
	try       func(*facts) error
	apart     bool // it may end its sandbox: it gets one of its own
}

// absent is the error of a probe that cannot be tried.
type absent string

func (a absent) Error() string { return string(a) }

func (p *probe) outcome(err error) outcome {
	o := outcome{p.id, p.title, contained, ""}
	var none absent
	switch {
	case err == nil:
		o.Verdict, o.Why = escaped, "it succeeded"
	case errors.As(err, &none):
		o.Verdict, o.Why = notApplicable, err.Error()
	default:
		o.Why = err.Error()
	}
	return o
}

// perProbe bounds one probe. Networks that drop packets need it.
const perProbe = 3 * time.Second

// inside tries the probes of the cases, each in a process of its own, so that one that changes its process or dies does
// not change the next.
func inside(text string, cases []string, out io.Writer) error {
	all := probes()
	for i := range all {
		if all[i].apart || !chosen(all[i].id, cases) {
			continue
		}
		o, err := all[i].inProcess(i, text)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(out).Encode(o); err != nil {
			return err
		}
	}
	return nil
}

func (p *probe) inProcess(index int, text string) (o outcome, err error) {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	cmd := exec.Command(self, "selftest", probeVerb, fmt.Sprint("-one=", index), text)
	cmd.Env, cmd.Stdin = os.Environ(), os.Stdin // it may be the caller's terminal
	cmd.WaitDelay = time.Second
	timer := time.AfterFunc(perProbe, func() {
		if cmd.Process != nil {
			cmd.Process.Kill()
		}
	})
	defer timer.Stop()
	raw, err := cmd.Output()
	if json.Unmarshal(raw, &o) == nil {
		return o, nil
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			if ws.Signal() == syscall.SIGKILL {
				return p.outcome(errors.New("no answer")), nil
			}
			return p.outcome(fmt.Errorf("killed by %v", ws.Signal())), nil
		}
	}
	return o, fmt.Errorf("start a process for %q: %w", p.title, err)
}
