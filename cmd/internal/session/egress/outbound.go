// Package outbound makes of what a caller says about the network what a runner takes.
//
//	e, notes, err := egress.Find(ctx, egress.Wants{Mode: "package-managers"}, os.Getenv)
//	spec.Egress = e                                    // nil: no network
//	e.Log, err = egress.LogFile(root, name)
//
// A policy file, and the mirrors that this host's tools are told to use, are read by
// demesne-egress, which is started for them: what it takes to understand them would cost
// every run that wants none. Names alone are words for the runner, and start nothing.
package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"

	"demesne/runner"
	"demesne/runner/client"
)

// Program is what the helper is called.
const Program = "demesne-egress"

// None is the mode that needs no rule, and the one without any word.
const None = "none"

// Wants is what a caller says.
type Wants struct {
	Mode        string   // of package modes; empty: the file's, or none
	File        string   // a policy file; empty: none
	Allow, Deny []string // rules besides
	GoProxy     bool     // a Go module proxy inside, whatever the mode
	Gateway     bool     // a way out though nothing is allowed yet: it is learned, or asked about
}

// Rules is what demesne-egress answers: what was wrong, or what is to be.
type Rules struct {
	Wrong []string `json:"wrong,omitempty"` // a line for each thing
	Mode  string   `json:"mode,omitempty"`
	Go    bool     `json:"go,omitempty"`    // the mode has a Go module proxy inside
	Allow []string `json:"allow,omitempty"` // the file's, and the mirrors; the mode's own are the runner's to add
	Deny  []string `json:"deny,omitempty"`
	Notes []string `json:"notes,omitempty"` // about configuration that was not understood
}

// Error is what is wrong with a policy file, one line each and never none.
type Error struct{ Lines []string }

func (e *Error) Error() string {
	if n := len(e.Lines) - 1; n > 0 {
		return fmt.Sprintf("%s (and %d more)", e.Lines[0], n)
	}
	return e.Lines[0]
}

// Find makes the runner's words of w, and the host's own way out of getenv. It is nil
// when w wants no network. Notes are lines for a person.
func Find(ctx context.Context, w Wants, getenv func(string) string) (*runner.Egress, []string, error) {
	var r Rules
	if (w.Mode != "" && w.Mode != None) || w.File != "" {
		var err error
		if r, err = ask(ctx, w); err != nil {
			return nil, nil, err
		}
	}
	e := &runner.Egress{
		Mode:    r.Mode,
		Allow:   append(r.Allow, w.Allow...),
		Deny:    append(r.Deny, w.Deny...),
		GoProxy: r.Go || w.GoProxy,
	}
	if (e.Mode == "" || e.Mode == None) && len(e.Allow) == 0 && !e.GoProxy && !w.Gateway {
		return nil, r.Notes, nil
	}
	e.Upstream = Upstream(getenv)
	return e, r.Notes, nil
}

// ask starts the helper. What it says on stderr says why there is no answer.
func ask(ctx context.Context, w Wants) (r Rules, err error) {
	path, err := client.FindProgram(Program)
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(ctx, path, "rules", "--mode="+w.Mode, "--file="+w.File)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	if err != nil && errs.Len() > 0 {
		err = errors.New(string(bytes.TrimSpace(errs.Bytes())))
	}
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	switch {
	case err != nil:
		return r, fmt.Errorf("run %s: %w", Program, err)
	case len(r.Wrong) > 0:
		return r, &Error{r.Wrong}
	}
	return r, nil
}

// Upstream is the proxy that this host is told to use, which only the runner is told. It is nil where
// there is none.
func Upstream(getenv func(string) string) map[string]string {
	found := map[string]string{}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"} {
		if v := getenv(name); v != "" {
			found[name] = v
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found
}

// Again gives a sandbox that is started again over its files the way out that getenv knows, for
// no file has it; see client.Options.
func Again(getenv func(string) string) func(*runner.Spec) {
	return func(s *runner.Spec) { s.Egress.Upstream = Upstream(getenv) }
}
