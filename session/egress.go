package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/client"
)

// EgressProgram reads policy files and the mirrors that this host's tools are configured to use. It is another
// program because its parsers would slow down every run without a network. Plain allow and deny rules go to
// the runner unchanged, without this program.
const EgressProgram = "demesne-proxy"

// Egress says what a sandbox may reach, in the caller's words. The zero value: nothing, and no gateway.
type Egress struct {
	Mode           string   // a mode of package policy; empty: the file's, or none
	File           string   // path of a policy file; empty: no file
	Allow, Deny    []string // additional rules
	GoProxy        bool     // provide a Go module proxy inside, whatever the mode
	Learn          bool     // allow every public address, and log what is reached
	OpenWithInputs bool     // see runner.Egress
	Gateway        bool     // make a gateway although nothing is allowed: the rules may change later

	// Ask is how long a connection waits for Callbacks.Ask; 0: no questions.
	Ask time.Duration

	PackageAge       time.Duration // least age of packages; 0: any. See runner.Egress
	PackageAgeExcept []string      // names of packages that may be younger

	Secrets []runner.Secret `json:"-"` // in addition to Options.Secrets. A restart takes Options.SecretsOf's

	Routes  []runner.Route `json:"-"` // HTTP services on the sandbox's loopback; any mode may have them
	Group   string         // see runner.Egress; any mode may have one
	Aliases []string       // see runner.Egress
	Listen  []uint16       // see runner.Egress; any mode may have them

	HostPorts []uint16 // see runner.Egress; Allow has the rule for each
}

// anyway reports whether e needs a gateway whatever the mode: for services on the sandbox's loopback, or for a group.
func (e *Egress) anyway() bool { return len(e.Routes) > 0 || len(e.Listen) > 0 || e.Group != "" }

// egressResolver makes the runner's settings of what sandboxes may reach.
type egressResolver struct {
	getenv func(string) string
	source func() ([]runner.Secret, error) // see Options.Secrets
	again  func(runner.Spec) []runner.Secret
	routes func(runner.Spec) []runner.Route
}

// likely reports whether the sandbox may get a gateway, before any rules are read.
func (g *egressResolver) likely(e Egress) bool {
	some := e.Mode != "" || e.File != "" || e.Allow != nil || e.Deny != nil || e.Learn || e.Gateway || e.Ask > 0 || e.GoProxy || g.source != nil || len(e.Secrets) > 0
	return some && e.Mode != runner.NoEgress || e.Gateway || e.anyway()
}

// policyError lists what is wrong with a policy file. Lines is never empty.
type policyError struct{ Lines []string }

func (e *policyError) Error() string {
	if n := len(e.Lines) - 1; n > 0 {
		return fmt.Sprintf("%s (and %d more)", e.Lines[0], n)
	}
	return e.Lines[0]
}

// resolved is the answer of resolve.
type resolved struct {
	egress *runner.Egress
	env    []string // see runner.EgressRules
	err    error
}

// resolve turns e into the runner's settings, in the background: reading a policy file or this host's configuration
// takes some milliseconds.
func (g *egressResolver) resolve(ctx context.Context, e Egress, note func(string)) <-chan resolved {
	answer := make(chan resolved, 1)
	go func() {
		to, r, err := g.settings(ctx, e)
		for _, line := range r.Notes {
			if note != nil {
				note("invalid mirror: " + line)
			}
		}
		answer <- resolved{to, r.Env, err}
	}()
	return answer
}

// settings returns the runner's settings for e, with the host's own proxy and the caller's credentials, or nil if e
// wants no network. It also returns the rules that they come from.
func (g *egressResolver) settings(ctx context.Context, e Egress) (*runner.Egress, runner.EgressRules, error) {
	var r runner.EgressRules
	if (e.Mode != "" && e.Mode != runner.NoEgress) || e.File != "" {
		var err error
		if r, err = rulesOf(ctx, e.Mode, e.File); err != nil {
			return nil, r, err
		}
	}
	secrets, err := g.secrets()
	if err != nil {
		return nil, r, err
	}
	secrets = slices.Concat(secrets, e.Secrets)
	to := r.Egress
	to.Allow, to.Deny = append(slices.Clip(to.Allow), e.Allow...), append(slices.Clip(to.Deny), e.Deny...)
	to.GoProxy = to.GoProxy || e.GoProxy
	wanted := e.Learn || e.Gateway || e.Ask > 0 || len(secrets) > 0 || e.anyway()
	if (to.Mode == "" || to.Mode == runner.NoEgress) && len(to.Allow) == 0 && !to.GoProxy && !wanted {
		return nil, r, nil
	}
	to.Upstream, to.Trust, to.Secrets = upstream(g.getenv), trust(g.getenv, r.CAs), secrets
	to.Learn, to.OpenWithInputs, to.Gateway, to.Ask = e.Learn, e.OpenWithInputs, e.Gateway, runner.Duration(e.Ask)
	if err := g.aged(&to, e); err != nil {
		return nil, r, err
	}
	to.Routes, to.Listen, to.Group, to.Aliases, to.HostPorts = e.Routes, e.Listen, e.Group, e.Aliases, e.HostPorts
	return &to, r, nil
}

// The operator's bound on the age of packages. No caller can lower it, or add exceptions to it.
const (
	VarPackageAge       = "DEMESNE_PACKAGE_AGE"
	VarPackageAgeExcept = "DEMESNE_PACKAGE_AGE_EXCEPT"
)

// aged sets the age of packages: the higher one of the caller's and the operator's, with that one's exceptions.
func (g *egressResolver) aged(to *runner.Egress, e Egress) error {
	least, except := e.PackageAge, e.PackageAgeExcept
	if word := g.getenv(VarPackageAge); word != "" {
		bound, err := text.ParseAge(word)
		if err != nil {
			return fmt.Errorf("%s %q: %w", VarPackageAge, word, err)
		}
		own := strings.FieldsFunc(g.getenv(VarPackageAgeExcept), func(r rune) bool { return r == ',' || r == ' ' })
		switch {
		case least < bound:
			least, except = bound, own
		default:
			except = slices.DeleteFunc(slices.Clone(except), func(name string) bool { return !slices.Contains(own, name) })
		}
	}
	to.PackageAge, to.PackageAgeExcept = runner.Duration(least), except
	if least == 0 {
		to.Registries = nil
	}
	return nil
}

// restart adds to a restarted sandbox what no file stores; see client.Options.
func (g *egressResolver) restart(spec *runner.Spec) {
	spec.Egress.Upstream, spec.Egress.Trust = upstream(g.getenv), trust(g.getenv, nil)
	spec.Egress.Secrets, _ = g.secrets() // read before: it did not fail
	if g.again != nil {
		spec.Egress.Secrets = slices.Concat(spec.Egress.Secrets, g.again(*spec))
	}
	if g.routes != nil {
		spec.Egress.Routes = g.routes(*spec)
	}
}

func (g *egressResolver) secrets() ([]runner.Secret, error) {
	if g.source == nil {
		return nil, nil
	}
	return g.source()
}

// rulesOf returns the rules of a mode and a policy file, and keeps them for the next run.
func rulesOf(ctx context.Context, mode, file string) (r runner.EgressRules, err error) {
	program, err := client.FindProgram(EgressProgram)
	if err != nil {
		return r, err
	}
	kept := recalled(program, mode, file)
	if kept.holds() {
		return kept.Rules, nil
	}
	if kept.Rules, err = askRules(ctx, program, mode, file); err == nil {
		kept.keep()
	}
	return kept.Rules, err
}

// askRules runs the helper. Its stderr becomes the error if it fails.
func askRules(ctx context.Context, path, mode, file string) (r runner.EgressRules, err error) {
	cmd := exec.CommandContext(ctx, path, "rules", "--mode="+mode, "--file="+file)
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
		return r, fmt.Errorf("run %s: %w", EgressProgram, err)
	case len(r.Wrong) > 0:
		return r, text.Hinted(&policyError{r.Wrong}, "%s", "demesne egress lint "+file+" lists all errors in it")
	}
	return r, nil
}

// upstream returns the environment variables that name this host's proxy, or nil if none is set. Only the runner
// receives them.
func upstream(getenv func(string) string) map[string]string {
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
