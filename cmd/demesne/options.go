package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"demesne/runner"
)

// options is what a command line asked for; each command fills what its flags set.
type options struct {
	verb string
	help bool

	image, out, workspace, name string
	inputs                      []string
	user                        *runner.User
	limits                      runner.Limits
	require                     runner.Level
	nesting, trace              bool
	ttl                         time.Duration

	shell            *string // -c
	env              []string
	workdir          string
	timeout          time.Duration
	tty, interactive bool

	json     bool
	jsonFile string
	quiet    bool
	markdown bool
}

// images are the names --image takes.
var images = []string{"host"}

var levels = []string{string(runner.LevelFull), string(runner.LevelDegraded), string(runner.LevelMinimal)}

// spec is the sandbox that was asked for, without its directories.
func (o *options) spec() (runner.Spec, error) {
	s := runner.Spec{
		Name: o.name, Image: o.image, User: o.user, Limits: o.limits,
		Nesting: o.nesting, Require: o.require, TTL: runner.Duration(o.ttl),
	}
	var err error
	s.Inputs, err = inputs(o.inputs)
	return s, err
}

// argv is the command that was asked for: the arguments as they are, or the shell
// with the text of -c as one argument.
func (o *options) argv(args []string) ([]string, error) {
	if o.shell != nil {
		return append([]string{"/bin/sh", "-c", *o.shell}, args...), nil
	}
	if len(args) == 0 || args[0] == "" {
		return nil, hinted(errors.New("no command given"), "demesne %s --help shows examples", o.verb)
	}
	return args, nil
}

// environment resolves --env; names alone are taken from the caller.
func (o *options) environment(lookup func(string) (string, bool)) ([]string, error) {
	var env []string
	for _, e := range o.env {
		name, _, given := strings.Cut(e, "=")
		if given {
			env = append(env, e)
			continue
		}
		value, ok := lookup(name)
		if !ok {
			return nil, hinted(fmt.Errorf("env %q: not set here", name), "--env %s=VALUE gives it one", name)
		}
		env = append(env, name+"="+value)
	}
	if !o.tty {
		return env, nil
	}
	term, ok := lookup("TERM")
	if !ok || term == "" {
		term = "xterm"
	}
	return append([]string{"TERM=" + term}, env...), nil
}

// The setters of flags, each a check at the door.

func text(to *string) func(string) error {
	return func(s string) error {
		if s == "" {
			return errors.New("empty")
		}
		*to = s
		return nil
	}
}

func on(to *bool) func(string) error {
	return func(string) error { *to = true; return nil }
}

func list(to *[]string, check func(string) error) func(string) error {
	return func(s string) error {
		if err := check(s); err != nil {
			return err
		}
		*to = append(*to, s)
		return nil
	}
}

func (o *options) setImage(s string) error {
	o.image = s
	return oneOf(s, images)
}

func (o *options) setRequire(s string) error {
	o.require = runner.Level(s)
	return oneOf(s, levels)
}

func (o *options) setShell(s string) error {
	o.shell = &s
	return nil
}

func (o *options) setJSON(file string) error {
	o.json, o.jsonFile = true, file
	return nil
}

func (o *options) setName(s string) error {
	if !isName(s) {
		return errors.New("not a name (letters, digits, '_', '.', '-'; at most 63)")
	}
	o.name = s
	return nil
}

func isName(s string) bool {
	for i, c := range []byte(s) {
		plain := '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !plain && (i == 0 || !strings.ContainsRune("_.-", rune(c))) {
			return false
		}
	}
	return s != "" && len(s) <= 63
}

func (o *options) setUser(s string) error {
	uid, gid, both := strings.Cut(s, ":")
	if !both {
		gid = uid
	}
	u, uerr := strconv.ParseUint(uid, 10, 32)
	g, gerr := strconv.ParseUint(gid, 10, 32)
	// The last id is -1, which setuid(2) and chown(2) take for "leave it".
	if uerr != nil || gerr != nil || u == 1<<32-1 || g == 1<<32-1 {
		return errors.New("not UID or UID:GID in numbers (such as 1000 or 1000:100)")
	}
	o.user = &runner.User{UID: uint32(u), GID: uint32(g)}
	return nil
}

func (o *options) setWorkdir(s string) error {
	if !strings.HasPrefix(s, "/") {
		return errors.New("not an absolute path (it is one inside the sandbox)")
	}
	if strings.ContainsRune(s, 0) {
		return errors.New("has a NUL byte")
	}
	o.workdir = s
	return nil
}

func checkEnv(s string) error {
	name, value, _ := strings.Cut(s, "=")
	if !isEnvName(name) {
		return errors.New("not a variable's name (letters, digits and '_', no digit first)")
	}
	if strings.ContainsRune(value, 0) {
		return errors.New("has a NUL byte")
	}
	return nil
}

func isEnvName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

func oneOf(s string, words []string) error {
	for _, w := range words {
		if s == w {
			return nil
		}
	}
	err := fmt.Errorf("not known (known: %s)", strings.Join(words, ", "))
	if n := nearest(s, words); n != "" {
		return hinted(err, "did you mean %s?", n)
	}
	return err
}
