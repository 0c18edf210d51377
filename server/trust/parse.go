package trust

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"demesne/images/imageref"
	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/session"
	"demesne/session/project"
)

// table is the file. It has no key for what only the user's own command line may ask for: sockets, published ports, open egress
// with inputs, values of secrets, nesting, or files of this machine without their names in the question.
type table struct {
	Image   string
	Build   string
	Memory  scalar
	CPUs    scalar
	PIDs    scalar
	Disk    scalar
	Timeout scalar
	Egress  string
	Allow   []string `toml:"allow-domain"`
	Env     map[string]string
	Secrets []string
	Mount   []string
	Workdir string
	Setup   string
	Agent   struct {
		Branch      bool
		Permissions string
	}
}

// scalar is a text or a number.
type scalar string

// UnmarshalTOML takes a value.
func (s *scalar) UnmarshalTOML(v any) error {
	switch v.(type) {
	case string, int64, float64:
		*s = scalar(fmt.Sprint(v))
		return nil
	}
	return errors.New("not a text or a number")
}

// parse returns the flags that a file stands for. outside are the mounts that do not lie in the project.
func parse(f *project.File) (r project.Record, outside []string, err error) {
	var t table
	if !utf8.Valid(f.Text) || strings.ContainsRune(string(f.Text), 0) {
		return r, nil, errors.New("is not a text")
	}
	meta, err := toml.Decode(string(f.Text), &t)
	if err != nil {
		return r, nil, err
	}
	for _, k := range meta.Undecoded() {
		return r, nil, fmt.Errorf("line %d: unknown key %q", lineOf(string(f.Text), k[len(k)-1]), k.String())
	}
	// Keys of TOML are matched without regard to case, so a file could hide one that a reader does not recognize.
	for _, k := range meta.Keys() {
		if k.String() != strings.ToLower(k.String()) && k[0] != "env" {
			return r, nil, fmt.Errorf("line %d: unknown key %q", lineOf(string(f.Text), k[len(k)-1]), k.String())
		}
	}
	p := parser{dir: f.Dir}
	p.both(&t)
	r.Agent = slices.Clone(p.flags)
	p.mounts(t.Mount, &r)
	p.apart(&t, &r)
	r.Run = append(p.flags, r.Run...)
	return r, p.outside, errors.Join(p.errs...)
}

// lineOf returns the line of the first mention of a key, because the decoder tells lines only for wrong syntax.
func lineOf(file, key string) int {
	n := 0
	for line := range strings.Lines(file) {
		n++
		before, _, _ := strings.Cut(line, "=")
		if strings.HasSuffix(strings.Trim(strings.TrimSpace(before), `"'[]`), key) {
			return n
		}
	}
	return n
}

// parser collects flags and errors.
type parser struct {
	dir     string // of the project
	flags   []string
	outside []string
	errs    []error
}

// add adds a flag with a value that check accepts. A value is a word of its own after "=", so it never becomes another flag.
func (p *parser) add(key, value string, check func(string) error) {
	if value == "" {
		return
	}
	var err error
	switch {
	case strings.ContainsRune(value, 0):
		err = errors.New("has a NUL byte")
	case check != nil:
		err = check(value)
	}
	if err != nil {
		p.errs = append(p.errs, fmt.Errorf("%s %q: %w", key, text.SafeLine(value), err))
	}
	p.flags = append(p.flags, "--"+key+"="+value)
}

// both adds the flags that run and agent have.
func (p *parser) both(t *table) {
	var n int64
	var f float64
	var mode string
	if t.Image != "" && t.Build != "" {
		p.errs = append(p.errs, errors.New("image and build: cannot be combined"))
	}
	p.add("image", t.Image, checkImage)
	if t.Build != "" {
		path, err := p.inside(t.Build)
		p.add("build", path, func(string) error { return err })
	}
	p.add("memory", string(t.Memory), cmdline.Memory(&n))
	p.add("cpus", string(t.CPUs), cmdline.CPUs(&f))
	p.add("pids", string(t.PIDs), cmdline.PIDs(&n))
	p.add("disk", string(t.Disk), cmdline.Disk(&n))
	p.add("egress", t.Egress, cmdline.Word(&mode, runner.EgressModes()))
	for _, name := range t.Allow {
		p.add("allow-domain", name, oneLine)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Env)) {
		p.add("env", name+"="+t.Env[name], func(string) error { return checkName(name) })
	}
	for _, name := range t.Secrets {
		p.add("secret", name+"=vault:", func(string) error { return checkName(name) })
	}
}

// apart adds the flags that only one of run and agent has, or that mean another thing there.
func (p *parser) apart(t *table, r *project.Record) {
	both := p.flags
	p.flags = nil
	p.add("timeout", string(t.Timeout), checkDuration)
	p.add("workdir", t.Workdir, nil)
	p.add("setup", t.Setup, nil)
	r.Run = append(r.Run, p.flags...)
	p.flags = nil
	p.add("permissions", t.Agent.Permissions, func(s string) error { return cmdline.OneOf(s, []string{"ask", "skip"}) })
	if t.Agent.Branch {
		p.flags = append(p.flags, "--branch")
		p.add("setup", t.Setup, nil) // it prepares the clone
	}
	r.Agent = append(r.Agent, p.flags...)
	p.flags = both
}

// mounts adds mounts. The flags have the paths without links, and the word with which a later link is refused: what is mounted is
// what the question named. An agent has the project itself anyway.
func (p *parser) mounts(all []string, r *project.Record) {
	for _, arg := range all {
		source, rest, _ := strings.Cut(arg, ":")
		target, mode := rest, "ro"
		if cut := strings.LastIndexByte(":"+rest, ':'); slices.Contains([]string{"ro", "rw"}, rest[cut:]) {
			target, mode = strings.TrimSuffix(rest[:cut], ":"), rest[cut:]
		}
		real, err := p.real(source)
		switch {
		case err == nil && (target != "" && !filepath.IsAbs(target) || strings.Contains(target, ":") || strings.Contains(real, ":")):
			err = errors.New("not PATH, PATH:MODE or PATH:/TARGET:MODE with mode ro or rw")
		case err == nil && strings.ContainsRune(arg, 0):
			err = errors.New("has a NUL byte")
		}
		if err != nil {
			p.errs = append(p.errs, fmt.Errorf("mount %q: %w", arg, err))
			continue
		}
		if target == "" {
			target = real
		}
		if !fsutil.Within(real, p.dir) {
			p.outside = append(p.outside, real+" ("+mode+")")
		}
		flag := "--mount=" + real + ":" + target + ":" + mode + runner.NoLinks
		r.Run = append(r.Run, flag)
		if real != p.dir {
			r.Agent = append(r.Agent, flag)
		}
	}
}

// real returns a path without links. It is relative to the project, absolute, or ~/ of the user.
func (p *parser) real(path string) (string, error) {
	if path == "" {
		return "", errors.New("no path")
	}
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		path = filepath.Join(home, rest)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(p.dir, path)
	}
	real, err := filepath.EvalSymlinks(path)
	return real, fsutil.Reason(err)
}

// inside returns a path of the project, without links.
func (p *parser) inside(path string) (string, error) {
	real, err := p.real(path)
	if err == nil && !fsutil.Within(real, p.dir) {
		err = errors.New("is outside the project")
	}
	return real, err
}

// checkImage refuses directories and archives: they would be files of this machine.
func checkImage(s string) error {
	ref, err := session.ParseImage(s)
	if err != nil {
		return err
	}
	if !slices.Contains([]imageref.Kind{imageref.Registry, imageref.Bare, imageref.Recipe, imageref.Host}, ref.Kind) {
		return errors.New("not an image of a registry or of demesne images")
	}
	return nil
}

func checkName(s string) error {
	if s == "" || strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") != "" || '0' <= s[0] && s[0] <= '9' {
		return errors.New("not a variable name")
	}
	return nil
}

func oneLine(s string) error {
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return errors.New("has a space or a control character")
	}
	return nil
}

func checkDuration(s string) error {
	var d time.Duration
	return cmdline.Duration(&d)(s)
}
