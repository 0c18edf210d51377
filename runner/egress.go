package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner/wire"
)

// Egress says what of the network a sandbox may reach, by name. A nil or zero Egress is
// nothing but a loopback: no gateway is made then, and none can be had later.
//
// Rules are words here, for whoever sends them need not understand them; the runner
// refuses what is malformed, with the rule quoted. See package policy for the words and
// package modes for the modes.
type Egress struct {
	Mode  string   `json:"mode,omitempty"`  // empty: none. The runner adds its rules; mirrors are the caller's to add
	Allow []string `json:"allow,omitempty"` // rules, as policy.ParseRule reads them
	Deny  []string `json:"deny,omitempty"`  // they go before all that allow

	// Mode "open" and Learn let data out to anybody: with Inputs or a Workspace of the
	// host's they are refused, unless OpenWithInputs. Learn always is.
	OpenWithInputs bool     `json:"open_with_inputs,omitempty"`
	Learn          bool     `json:"learn,omitempty"`    // every public address, for a log to make a policy of
	GoProxy        bool     `json:"go_proxy,omitempty"` // a server on the sandbox's own 127.0.0.1:8087 that leads to Go's public modules and checksums; GOPROXY names it
	Ask            Duration `json:"ask,omitempty"`      // how long a name that no rule speaks of waits for [Options.Ask]; 0: it is denied

	// Log is a file of the host for the decisions, one JSON object a line (decisions.Record).
	// Create makes it, as the caller, and it is flock(2)ed, shared, for as long as the sandbox
	// lives; it must not be where the sandbox can write.
	Log string `json:"log,omitempty"`

	// Upstream is HTTP_PROXY, HTTPS_PROXY and NO_PROXY of the caller, for the dial out.
	// The runner keeps it in memory only: in no Info, file or receipt.
	Upstream map[string]string `json:"upstream,omitempty"`

	// Secrets are the same. A command finds a placeholder in its environment.
	Secrets []Secret `json:"secrets,omitempty"`
}

// Secret is a credential that a sandbox uses without having it.
type Secret struct {
	Name   string `json:"name"` // of the environment variable inside that holds the placeholder
	Value  string `json:"value"`
	Host   string `json:"host"`             // where the value goes, over TLS; HOST:PORT where that is not 443
	Header string `json:"header,omitempty"` // in which header only; empty: any
}

func (s Secret) String() string { return s.Name }

// GoString keeps the value out of %#v too.
func (s Secret) GoString() string { return "runner.Secret(" + s.Name + ")" }

// Port is a server inside that the host can reach.
type Port struct {
	Listen string `json:"listen"` // 127.0.0.1:8080, [::1]:8080 or unix:/absolute/path
	To     uint16 `json:"to"`     // on the sandbox's loopback
}

// Blocked is what a sandbox wanted of the network and did not get.
type Blocked struct {
	Host   string `json:"host"`
	Port   uint16 `json:"port,omitempty"` // 0: a name was asked for
	Reason string `json:"reason"`
	Times  int    `json:"times"`
}

func (b Blocked) String() string {
	if b.Port == 0 {
		return fmt.Sprintf("%s (%s)", b.Host, b.Reason)
	}
	return fmt.Sprintf("%s:%d (%s)", b.Host, b.Port, b.Reason)
}

// EgressChange is the body of an egress call: what a live sandbox may or may not reach
// from now on, besides.
type EgressChange struct {
	Sandbox string   `json:"sandbox"`
	Allow   []string `json:"allow,omitempty"`
	Deny    []string `json:"deny,omitempty"`
}

// ChangeEgress adds rules to a live sandbox's. Tunnels that are open stay. A sandbox
// without a gateway has no egress to change.
func (c *Client) ChangeEgress(ctx context.Context, change EgressChange) error {
	return c.lost(c.peer.Call(ctx, OpEgress, change, nil, nil))
}

// openLog makes the log for a sandbox that has one. What is there already is added to.
func (s *sourceFiles) openLog(spec *Spec) error {
	if spec.Egress == nil || spec.Egress.Log == "" {
		return nil
	}
	own := *spec.Egress // the caller's stays as it was
	spec.Egress = &own
	abs, err := absPath(own.Log)
	if err != nil {
		return err
	}
	own.Log = abs
	for _, dir := range []string{spec.Out, spec.Workspace} {
		if dir == "" {
			continue
		}
		real, err1 := filepath.EvalSymlinks(filepath.Dir(abs))
		dir, err2 := filepath.EvalSymlinks(dir)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if within(real, dir) {
			return fmt.Errorf("%q is in %q, where the sandbox can write", abs, dir)
		}
	}
	f, err := openLocked(abs)
	if err != nil {
		return err
	}
	s.byName[FileLog] = f
	return nil
}

// openLocked opens a log to add to, with a lock that lasts as long as anybody has it open.
// Whoever removes old ones locks them first: one that is going is waited for, and made anew. A
// file system without locks has none.
func openLocked(path string) (*os.File, error) {
	for end := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, err
		}
		locked := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		var st unix.Stat_t
		going := locked == unix.EWOULDBLOCK || unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink == 0
		if !going || time.Now().After(end) {
			return f, nil
		}
		f.Close()
	}
}

// Question is one that the runner asks who made a sandbox with Egress.Ask.
type Question struct {
	Sandbox string `json:"sandbox"`
	ID      uint64 `json:"id"`
	Name    string `json:"name"`
	Port    uint16 `json:"port"`
}

// Answer is the body of an answer call.
type Answer struct {
	Sandbox string `json:"sandbox"`
	ID      uint64 `json:"id"`
	Allow   bool   `json:"allow"`
}

// asked hands a question to who was named in Options, and the answer back. Without
// anybody to ask the answer is no, at once.
func (c *Client) asked(m *wire.Message) {
	var q Question
	if err := m.Decode(&q); err != nil {
		return
	}
	a := Answer{Sandbox: q.Sandbox, ID: q.ID, Allow: c.ask != nil && c.ask(q)}
	c.peer.Call(context.Background(), OpAnswer, a, nil, nil) // too late is no news
}
