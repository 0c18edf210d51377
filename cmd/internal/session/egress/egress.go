// Package egress turns a caller's network options into the runner's egress settings.
//
//	e, notes, err := egress.Find(ctx, egress.Wants{Mode: "package-managers"}, os.Getenv)
//	spec.Egress = e                                    // nil: no network
//	e.Log, err = egress.LogFile(root, name)
//
// The helper demesne-proxy reads policy files and the mirrors that this host's tools are configured to use. It
// is a separate program because its parsers would slow down every run without a network. Rules of names alone
// go to the runner as they are, and start no helper.
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

// Program is the name of the helper program.
const Program = "demesne-proxy"

// None is the mode without rules, and the default.
const None = "none"

// Wants holds the caller's network options.
type Wants struct {
	Mode        string   // a mode of package preset; empty: the file's, or none
	File        string   // path of a policy file; empty: no file
	Allow, Deny []string // additional rules
	GoProxy     bool     // provide a Go module proxy inside, whatever the mode
	Gateway     bool     // set up egress though no rule allows anything yet: for --learn, questions and secrets
}

// Rules is the answer of demesne-proxy: either what is wrong, or the effective rules.
type Rules struct {
	Wrong []string `json:"wrong,omitempty"` // one line for each error
	Mode  string   `json:"mode,omitempty"`
	Go    bool     `json:"go,omitempty"`    // the mode includes a Go module proxy
	Allow []string `json:"allow,omitempty"` // the file's and the mirrors' rules; the runner adds the mode's own
	Deny  []string `json:"deny,omitempty"`
	Notes []string `json:"notes,omitempty"` // about configuration that could not be parsed
}

// Error lists what is wrong with a policy file. Lines is never empty.
type Error struct{ Lines []string }

func (e *Error) Error() string {
	if n := len(e.Lines) - 1; n > 0 {
		return fmt.Sprintf("%s (and %d more)", e.Lines[0], n)
	}
	return e.Lines[0]
}

// Find returns the runner's egress settings for w, with the host's own proxy from getenv. It returns nil if w
// wants no network. The notes are lines for the user.
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

// ask runs the helper. Its stderr becomes the error if it fails.
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

// Upstream returns the environment variables that name this host's proxy, or nil if none is set. Only the
// runner receives them.
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

// Again returns a function that gives a restarted sandbox the upstream proxy from getenv, because the sandbox's
// stored files do not contain it; see client.Options.
func Again(getenv func(string) string) func(*runner.Spec) {
	return func(s *runner.Spec) { s.Egress.Upstream = Upstream(getenv) }
}
