package hostcmd

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"demesne/internal/fsutil"
)

// Policy is what the operator allows. [ReadPolicy] makes it; the zero value allows nothing.
type Policy struct {
	file    string
	path    []string // where programs are searched
	env     []string // names of further variables
	timeout time.Duration
	pending time.Duration
	grant   time.Duration
	http    bool
	own     *rules
	spaces  map[string]*rules
}

// rules are the rules of the callers of one namespace.
type rules struct {
	allow, deny []Pattern
	ask         bool
	dirs        []string // where allowed commands may start; the first is the default
	read, write []string
}

// policyFile is the shape of the file.
type policyFile struct {
	Path         []string             `toml:"path"`
	Environment  []string             `toml:"environment"`
	Timeout      string               `toml:"timeout"`
	Pending      string               `toml:"pending"`
	Grant        string               `toml:"grant"`
	HTTPApproval *bool                `toml:"http_approval"`
	Namespace    map[string]ruleTable `toml:"namespace"`
	ruleTable
}

// ruleTable is one set of rules. A pattern is a text or a list of words.
type ruleTable struct {
	Allow       []any    `toml:"allow"`
	Deny        []any    `toml:"deny"`
	Safe        *bool    `toml:"safe"`
	Ask         *bool    `toml:"ask"`
	Directories []string `toml:"directories"`
	Read        []string `toml:"read"`
	Write       []string `toml:"write"`
}

// safe are the commands that run without a line of the policy. They only measure this machine: none names a user or a
// file, reads a configuration in the working directory, or takes arguments of a caller.
var safe = []string{"arch", "date", "date -u", "free -m", "lscpu", "nproc", "uname -m", "uname -r", "uname -s", "uptime"}

// searched is where programs are searched. The server's own PATH does not count: it may have directories that a sandbox writes.
var searched = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// maxPolicy bounds a policy, in bytes.
const maxPolicy = 1 << 20

// ReadPolicy reads a policy. No other user may be able to write it.
func ReadPolicy(path string) (*Policy, error) {
	p, err := readPolicy(path)
	if err != nil {
		return nil, fmt.Errorf("host policy %q: %w", path, err)
	}
	return p, nil
}

func readPolicy(path string) (*Policy, error) {
	text, err := fsutil.ReadTrusted(path, maxPolicy)
	if err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return nil, err
	}
	return parsePolicy(string(text), real)
}

func parsePolicy(text, file string) (*Policy, error) {
	var in policyFile
	meta, err := toml.Decode(text, &in)
	if err != nil {
		return nil, err
	}
	if keys := meta.Undecoded(); len(keys) > 0 {
		return nil, fmt.Errorf("unknown key %q", keys[0].String())
	}
	p := &Policy{file: file, path: searched, env: in.Environment, http: in.HTTPApproval == nil || *in.HTTPApproval, spaces: map[string]*rules{}}
	if in.Path != nil {
		p.path = in.Path
	}
	for _, dir := range p.path {
		if !filepath.IsAbs(dir) {
			return nil, fmt.Errorf("path: %q is not absolute", dir)
		}
	}
	for _, d := range []struct {
		name, text  string
		to          *time.Duration
		usual, most time.Duration
	}{
		{"timeout", in.Timeout, &p.timeout, time.Minute, time.Hour},
		{"pending", in.Pending, &p.pending, 10 * time.Minute, 24 * time.Hour},
		{"grant", in.Grant, &p.grant, time.Hour, 24 * time.Hour},
	} {
		if *d.to, err = duration(d.text, d.usual, d.most); err != nil {
			return nil, fmt.Errorf("%s: %w", d.name, err)
		}
	}
	if p.own, err = p.rules(in.ruleTable); err != nil {
		return nil, err
	}
	for name, t := range in.Namespace {
		if p.spaces[name], err = p.rules(t); err != nil {
			return nil, fmt.Errorf("namespace %q: %w", name, err)
		}
	}
	return p, nil
}

func duration(s string, usual, most time.Duration) (time.Duration, error) {
	if s == "" {
		return usual, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Second || d > most {
		return 0, fmt.Errorf("%q is not a time from 1s to %v", s, most)
	}
	return d, nil
}

func (p *Policy) rules(t ruleTable) (r *rules, err error) {
	r = &rules{ask: t.Ask == nil || *t.Ask}
	if t.Safe == nil || *t.Safe {
		for _, line := range safe {
			r.allow = append(r.allow, Pattern{strings.Fields(line)})
		}
	}
	for _, list := range []struct {
		name  string
		from  []any
		parse func([]string) (Pattern, error)
		to    *[]Pattern
	}{{"allow", t.Allow, ParsePattern, &r.allow}, {"deny", t.Deny, parseDenied, &r.deny}} {
		for _, from := range list.from {
			one, err := patternOf(from, list.parse)
			if err != nil {
				return nil, fmt.Errorf("%s: %v: %w", list.name, from, err)
			}
			*list.to = append(*list.to, one)
		}
	}
	if r.dirs, err = roots(t.Directories); err != nil {
		return nil, fmt.Errorf("directories: %w", err)
	}
	if r.dirs == nil {
		r.dirs = []string{"/"}
	}
	if r.read, err = roots(t.Read); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if r.write, err = roots(t.Write); err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	return r, p.checkWrite(r.write)
}

func patternOf(from any, parse func([]string) (Pattern, error)) (Pattern, error) {
	var words []string
	switch from := from.(type) {
	case string:
		var err error
		if words, err = splitPattern(from); err != nil {
			return Pattern{}, err
		}
	case []any:
		for _, w := range from {
			s, ok := w.(string)
			if !ok {
				return Pattern{}, errors.New("not a list of words")
			}
			words = append(words, s)
		}
	default:
		return Pattern{}, errors.New("neither a text nor a list of words")
	}
	return parse(words)
}

// roots resolves the links of directories, which must exist.
func roots(dirs []string) (all []string, err error) {
	for _, dir := range dirs {
		if !filepath.IsAbs(dir) {
			return nil, fmt.Errorf("%q is not absolute", dir)
		}
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, real)
	}
	return all, nil
}

// checkWrite refuses directories whose files decide what runs here.
func (p *Policy) checkWrite(dirs []string) error {
	for _, dir := range dirs {
		for _, place := range append(slices.Clone(p.path), p.file) {
			if real, err := filepath.EvalSymlinks(place); err == nil && fsutil.Within(real, dir) {
				return fmt.Errorf("write: %q contains %q", dir, place)
			}
		}
	}
	return nil
}

// of returns the rules of a namespace; nil: it has no access. A namespace does not inherit the rules of callers without one.
func (p *Policy) of(namespace string) *rules {
	if namespace == "" {
		return p.own
	}
	return p.spaces[namespace]
}

// Grant returns how long an approved pattern holds at most.
func (p *Policy) Grant() time.Duration { return p.grant }

// HTTPApproval reports whether the operator may decide over HTTP too.
func (p *Policy) HTTPApproval() bool { return p.http }
