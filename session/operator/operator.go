// Package operator decides what a caller who is not the user may ask: a model, or a client of a namespace of the HTTP API.
// Each frontend asks a [Policy] before it calls package session, so that all frontends follow one rule.
//
//	operator.go     bounds, as an operator sets them, and a policy of them
//	environment.go  bounds from the variables of a program for models, or else from the machine
//	limits.go       limits of a sandbox, the time of a command, the cost of an agent
//	hostpaths.go    files and directories of this machine
//	images.go       images; egress.go: modes and rules of the network; secrets.go: stored credentials
//
// A Policy decides and changes nothing. A frontend's protocol decides what happens to a limit that is too high: a
// model gets an error that it can act on, and a client of E2B's protocol, which has no ceilings, gets less.
package operator

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"unicode/utf8"

	"demesne/images/imageref"
	"demesne/proxy/policy"
	"demesne/runner"
	"demesne/session"
	"demesne/session/vault"
)

// ErrRefused means that the operator does not allow what a caller asks for, or that it has no meaning.
var ErrRefused = errors.New("invalid request")

// DefaultEgress is the widest mode of an operator who sets none.
const DefaultEgress = open

// open is the mode with every public address.
const open = "open"

// Caller says for whom a policy decides.
type Caller struct {
	// Namespace of the callers; empty: they have the rights of the user, but for what a model may not do.
	Namespace string
	// Model means that a model asks: it may name no rule that leads to this machine's networks, and a person decides
	// about names that are on no list.
	Model bool
	// Secrets is the namespace of the stored credentials that the callers may use; empty: none.
	Secrets string
	// VaultKey is the value of DEMESNE_VAULT_KEY, for them.
	VaultKey string
}

// Policy decides about requests of one kind of callers. It is safe for concurrent use.
type Policy struct {
	session.Bounds
	Caller
	most     runner.Limits                // 0: no bound
	listed   []policy.Rule                // what callers may reach beyond the widest mode
	hostDirs []hostDir                    // of this machine, for callers that are not its user
	image    imageref.Ref                 // the default
	secrets  func() (*vault.Vault, error) // opens them when they are needed; nil: none are offered
}

// New returns the policy of bounds for a caller.
func New(b session.Bounds, c Caller) (*Policy, error) {
	p := &Policy{Bounds: b, Caller: c}
	p.Egress = cmp.Or(b.Egress, DefaultEgress)
	if _, err := policy.ParseMode(p.Egress); err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	p.most = runner.Limits{
		Memory: cmp.Or(b.Max.Memory, max(b.Limits.Memory, 0)), Disk: cmp.Or(b.Max.Disk, max(b.Limits.Disk, 0)),
		PIDs: cmp.Or(b.Max.PIDs, runner.DefaultPIDs), CPUs: b.Max.CPUs,
	}
	p.Limits = usual(b.Limits, p.most, full(b.Limits))
	for _, words := range b.AllowedDomains {
		r, err := policy.ParseRule(words)
		if err != nil {
			return nil, fmt.Errorf("allowed-domains %q: %w", words, err)
		}
		p.listed = append(p.listed, r)
	}
	var err error
	if p.hostDirs, err = parseHostDirs(b.AllowedMounts); err != nil {
		return nil, err
	}
	if p.image, err = session.ParseImage(cmp.Or(b.Image, imageref.Default(func(string) string { return "" }))); err != nil {
		return nil, fmt.Errorf("image %q: %w", b.Image, err)
	}
	if c.Secrets != "" {
		if !vault.IsNamespace(c.Secrets) {
			return nil, fmt.Errorf("secrets %q: not lower-case letters, digits and dashes", c.Secrets)
		}
		p.secrets = sync.OnceValues(func() (*vault.Vault, error) { return vault.Default(c.VaultKey) })
	}
	return p, nil
}

// hostDir is a directory of this machine that an operator allows.
type hostDir struct {
	path     string
	writable bool
}

func parseHostDirs(words []string) (all []hostDir, err error) {
	for _, w := range words {
		dir, writable := strings.CutSuffix(w, ":rw")
		if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || !utf8.ValidString(dir) {
			return nil, fmt.Errorf("allowed-mounts %q: not an absolute path without . and .., or such a path with :rw", w)
		}
		all = append(all, hostDir{dir, writable})
	}
	return all, nil
}

// Agent returns why the callers may not run an agent, or nil. research means one with the whole network.
func (p *Policy) Agent(research bool) error {
	switch {
	case p.Namespace != "" && !p.Agents:
		return refused("the operator allows no agents in this namespace")
	case research && p.Egress != open:
		return refused("sandbox_research: the operator allows %q (%s)", p.Egress, VarEgress)
	}
	return nil
}

// refusal is an [ErrRefused] with a reason.
type refusal struct{ error }

func (refusal) Is(target error) bool { return target == ErrRefused }

func (r refusal) Unwrap() error { return r.error }

func refused(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }
