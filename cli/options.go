package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"demesne/cli/app"
	"demesne/images"
	"demesne/images/imageref"
	"demesne/internal/cmdline"
	"demesne/runner"
	"demesne/session"
)

// options holds a parsed command line, in one part for each subject. Each command uses the parts that its flags set.
type options struct {
	*app.App

	rootOptions
	fileOptions
	mountOptions
	cowOptions
	lifeOptions
	isolationOptions
	network network
	processOptions
	reportOptions
}

// rootOptions choose the root filesystem of a sandbox.
type rootOptions struct {
	image    imageref.Ref // zero: no image was named
	pull     images.PullPolicy
	platform string
}

// fileOptions name the files of this machine that a sandbox reads or writes.
type fileOptions struct {
	inputs, sockets []string
	out, workspace  string
	interior        runner.Interior
}

// lifeOptions name a sandbox and say how long it exists, and for whom.
type lifeOptions struct {
	name, key   string
	replace     bool
	ttl, maxAge time.Duration
	pauseIdle   time.Duration
	share       runner.Frontend
}

// isolationOptions bound what a sandbox can use and do.
type isolationOptions struct {
	limits  runner.Limits
	require runner.Level
	nesting bool
}

// processOptions describe a command in a sandbox, and how it is run.
type processOptions struct {
	entrypoint       *[]string
	shell            *string // -c
	env, fileEnv     []string
	workdir          string
	user             *runner.User
	userName         string // instead of user; resolved in the image
	timeout          time.Duration
	tty, interactive bool
}

// reportOptions choose the form of an answer.
type reportOptions struct {
	json     bool
	jsonFile string
	quiet    bool
	trace    bool
}

var pullPolicies = []string{string(images.PullMissing), string(images.PullAlways), string(images.PullNever)}

var shares = []string{string(runner.FrontendMCP)}

var levels = []string{string(runner.LevelFull), string(runner.LevelDegraded), string(runner.LevelMinimal)}

// spec returns the sandbox's spec, without its directories.
func (o *options) spec() (runner.Spec, error) {
	s := runner.Spec{
		Name: o.name, User: o.user, Limits: o.limits,
		Interior:  o.interior,
		Workspace: o.workspace, Publish: o.network.publish, Nesting: o.nesting, Share: o.share, Require: o.require, Key: o.key, Replace: o.replace, TTL: runner.Duration(o.ttl), MaxAge: runner.Duration(o.maxAge), PauseIdle: runner.Duration(o.pauseIdle),
	}
	if o.replace && o.key == "" {
		return s, errors.New("--replace: needs --key")
	}
	var err error
	if err = o.network.checkSecrets(); err != nil {
		return s, err
	}
	s.Inputs, err = session.ParseInputs(o.inputs, o.sockets)
	return s, err
}

// argv returns the command to run: the arguments, or with -c the shell and its text.
func (o *processOptions) argv(verb string, args []string) ([]string, error) {
	if o.shell != nil {
		return append([]string{"/bin/sh", "-c", *o.shell}, args...), nil
	}
	if len(args) == 0 || args[0] == "" {
		return nil, app.Hinted(errors.New("no command given"), "demesne %s --help shows examples", verb)
	}
	return args, nil
}

// environment resolves --env-file and --env; the value of a bare name is the caller's.
func (o *processOptions) environment(lookup func(string) (string, bool)) ([]string, error) {
	var env []string
	for _, e := range slices.Concat(o.fileEnv, o.env) {
		name, _, given := strings.Cut(e, "=")
		if given {
			env = append(env, e)
			continue
		}
		value, ok := lookup(name)
		if !ok {
			return nil, app.Hinted(fmt.Errorf("env %q: not set in this environment", name), "use --env %s=VALUE", name)
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

// The setters of flags check their values.

func (o *rootOptions) setImage(s string) (err error) {
	o.image, err = session.ParseImage(s)
	return err
}

// setEntrypoint sets the entrypoint to one program; the empty string removes it.
func (o *processOptions) setEntrypoint(s string) error {
	o.entrypoint = &[]string{}
	if s != "" {
		o.entrypoint = &[]string{s}
	}
	return nil
}

func (o *processOptions) setShell(s string) error {
	o.shell = &s
	return nil
}

func (o *reportOptions) setJSON(file string) error {
	o.json, o.jsonFile = true, file
	return nil
}

func (o *lifeOptions) setName(s string) error {
	if err := runner.CheckName(s); err != nil {
		return fmt.Errorf("not a name: %w", err)
	}
	o.name = s
	return nil
}

func isName(s string) bool { return runner.CheckName(s) == nil }

var errUser = errors.New("not UID or UID:GID in numbers (such as 1000 or 1000:100)")

// setUser parses numeric ids. It keeps names as they are, because only an image can resolve them.
func (o *processOptions) setUser(s string) error {
	o.user, o.userName = nil, ""
	uid, gid, both := strings.Cut(s, ":")
	if !both {
		gid = uid
	}
	u, uok := parseID(uid)
	g, gok := parseID(gid)
	switch {
	case uok && gok:
		o.user = &runner.User{UID: u, GID: g}
	case (uok || isUserName(uid)) && (gok || isUserName(gid)):
		o.userName = s
	default:
		return errUser
	}
	return nil
}

// parseID parses an id. It rejects 2^32-1, the -1 that means "unchanged" in setresuid(2) and chown(2).
func parseID(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil && n != 1<<32-1
}

func isUserName(s string) bool { return isName(s) && strings.Trim(s, "0123456789") != "" }

func (o *processOptions) setWorkdir(s string) error {
	if !strings.HasPrefix(s, "/") {
		return errors.New("not an absolute path inside the sandbox")
	}
	if strings.ContainsRune(s, 0) {
		return errors.New("has a NUL byte")
	}
	o.workdir = s
	return nil
}

// rootFlags returns the image flags of run and create.
func (o *rootOptions) rootFlags() cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupSandbox, Long: "image", Arg: "NAME", Complete: cmdline.Image, Set: o.setImage,
			Help: "root filesystem: host (this machine's /usr, read-only), a name from demesne images --all, a reference, or dir:ROOTFS (default $DEMESNE_DEFAULT_IMAGE or host)"},
		{Group: app.GroupSandbox, Long: "pull", Arg: "WHEN", Words: pullPolicies, Set: cmdline.Word(&o.pull, pullPolicies),
			Help: "when to ask the registry: missing, always or never (default missing)"},
	}
}

func (o *processOptions) entrypointFlag() cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupCommand, Long: "entrypoint", Arg: "PROGRAM", Set: o.setEntrypoint,
		Help: "replace the image's entrypoint and command by a program; empty removes both"}}
}

func outFlag(to *string) cmdline.Flag {
	return cmdline.Flag{Group: app.GroupSandbox, Long: "out", Arg: "DIR", Complete: cmdline.Directory, Set: cmdline.Text(to),
		Help: "directory for /out; a new one is readable by you alone (default a new one in $DEMESNE_OUTPUT_ROOT or ~/.demesne/out)"}
}

func (o *lifeOptions) nameFlag() cmdline.Flag {
	return cmdline.Flag{Group: app.GroupSandbox, Long: "name", Arg: "NAME", Set: o.setName,
		Help: "name of the sandbox, for other commands (default its id)"}
}

// keyFlag is a flag of create, run and exec. With it, exec takes no sandbox argument.
func (o *lifeOptions) keyFlag(help string) cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupSandbox, Long: "key", Arg: "KEY", Set: cmdline.Text(&o.key), Help: help}}
}

// replaceFlag is a flag of create and run.
func (o *lifeOptions) replaceFlag() cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupSandbox, Long: "replace", Set: cmdline.On(&o.replace),
		Help: "first remove the sandbox that has the key, with its files"}}
}

// lifeFlags returns the flags about the lifetime of a persistent sandbox.
func (o *lifeOptions) lifeFlags() cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupSandbox, Long: "ttl", Arg: "DURATION", Set: cmdline.Duration(&o.ttl),
			Help: "how long the sandbox exists after its last command (default 48h)"},
		{Group: app.GroupSandbox, Long: "max-age", Arg: "DURATION", Set: cmdline.Duration(&o.maxAge),
			Help: "how long the sandbox exists at most, even in use (default no limit)"},
		{Group: app.GroupSandbox, Long: "pause-idle", Arg: "DURATION", Set: cmdline.Duration(&o.pauseIdle),
			Help: "pause its processes (SIGSTOP) after this time without a command, until the next command; paused servers do not answer (default never)"},
	}
}

// checkInput is the part of the check that needs no file system.
func checkInput(arg string) error {
	switch {
	case arg == "":
		return errors.New("empty")
	case strings.ContainsRune(arg, 0):
		return errors.New("has a NUL byte")
	}
	return nil
}
