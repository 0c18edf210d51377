// Package launch turns flags into a sandbox, and runs a command in it for the caller.
//
// Each group of flags is a struct with a method that declares them: image, files, mounts, life, limits, network, process and
// answer. [Options] has them all, for run, create and agent; other verbs take single groups. Nothing is looked for while
// flags are parsed, except that a named file exists.
//
//	options.go, interior.go, network.go, secrets.go    flags → a session's options
//	root.go                                            the image, and what a devcontainer.json decides
//	execution.go, document.go                          one command: streams, result, exit code
//
// An [Execution] is one command, from its checks to its exit code. It is the session.Streams of its command.
//
// This package decides nothing about isolation, and reads no image: package session does. Directories of this machine at
// paths of their own are in cli/mounts.
package launch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"demesne/cli/app"
	"demesne/cli/devcontainer"
	"demesne/cli/mounts"
	"demesne/images"
	"demesne/images/imageref"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/session"
)

// Options holds a parsed command line, in one part for each subject. Each command uses the parts that its flags set.
type Options struct {
	*app.App

	rootOptions
	fileOptions
	Mounts mounts.Options
	Asked  *string                 // --devcontainer; nil: not requested
	dev    *devcontainer.Container // that was read

	Services *session.Services // --init; nil: none
	LifeOptions
	isolationOptions
	Network Network
	ProcessOptions
	reportOptions
}

// rootOptions choose the root filesystem of a sandbox.
type rootOptions struct {
	Image    imageref.Ref // zero: no image was named
	Pull     images.PullPolicy
	platform string
	build    string // directory with a Containerfile; empty: none
}

// fileOptions name the files of this machine that a sandbox reads or writes.
type fileOptions struct {
	Inputs, sockets []string
	out             string
	interior        runner.Interior
}

// LifeOptions name a sandbox and say how long it exists, and for whom.
type LifeOptions struct {
	Name, Key   string
	Replace     bool
	TTL, MaxAge time.Duration
	PauseIdle   time.Duration
	share       runner.Frontend
}

// isolationOptions bound what a sandbox can use and do.
type isolationOptions struct {
	Limits  runner.Limits
	require runner.Level
	nesting bool
}

// ProcessOptions describe a command in a sandbox, and how it is run.
type ProcessOptions struct {
	Entrypoint         *[]string
	Shell              *string // -c
	Variables, fileEnv []string
	Workdir            string
	User               *runner.User
	UserName           string // instead of user; resolved in the image
	timeout            time.Duration
	TTY, Interactive   bool
}

// reportOptions choose the form of an answer.
type reportOptions struct {
	JSON     bool
	JSONFile string
	quiet    bool
	Trace    bool
}

var pullPolicies = []string{string(images.PullMissing), string(images.PullAlways), string(images.PullNever)}

var shares = []string{string(runner.FrontendMCP)}

var levels = []string{string(runner.LevelFull), string(runner.LevelDegraded), string(runner.LevelMinimal)}

// Spec returns the sandbox's spec, without its directories.
func (o *Options) Spec() (runner.Spec, error) {
	s := runner.Spec{
		Name: o.Name, User: o.User, Limits: o.Limits,
		Interior:  o.interior,
		Workspace: o.Mounts.Workspace, Publish: o.Network.Publish, Nesting: o.nesting, Share: o.share, Require: o.require, Key: o.Key, Replace: o.Replace, TTL: runner.Duration(o.TTL), MaxAge: runner.Duration(o.MaxAge), PauseIdle: runner.Duration(o.PauseIdle),
	}
	if o.Replace && o.Key == "" {
		return s, errors.New("--replace: needs --key")
	}
	var err error
	if err = o.Network.CheckSecrets(); err != nil {
		return s, err
	}
	s.Inputs, err = session.ParseInputs(o.Inputs, o.sockets)
	return s, err
}

// Argv returns the command to run: the arguments, or with -c the shell and its text.
func (o *ProcessOptions) Argv(verb string, args []string) ([]string, error) {
	if o.Shell != nil {
		return append([]string{"/bin/sh", "-c", *o.Shell}, args...), nil
	}
	if len(args) == 0 || args[0] == "" {
		return nil, text.Hinted(errors.New("no command given"), "demesne %s --help shows examples", verb)
	}
	return args, nil
}

// Environment resolves --env-file and --env; the value of a bare name is the caller's.
func (o *ProcessOptions) Environment(lookup func(string) (string, bool)) ([]string, error) {
	var env []string
	for _, e := range slices.Concat(o.fileEnv, o.Variables) {
		name, _, hasValue := strings.Cut(e, "=")
		if hasValue {
			env = append(env, e)
			continue
		}
		value, ok := lookup(name)
		if !ok {
			return nil, text.Hinted(fmt.Errorf("env %q: not set in this environment", name), "use --env %s=VALUE", name)
		}
		env = append(env, name+"="+value)
	}
	if !o.TTY {
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
	o.Image, err = session.ParseImage(s)
	return err
}

// setEntrypoint sets the entrypoint to one program; the empty string removes it.
func (o *ProcessOptions) setEntrypoint(s string) error {
	o.Entrypoint = &[]string{}
	if s != "" {
		o.Entrypoint = &[]string{s}
	}
	return nil
}

func (o *ProcessOptions) setShell(s string) error {
	o.Shell = &s
	return nil
}

func (o *reportOptions) setJSON(file string) error {
	o.JSON, o.JSONFile = true, file
	return nil
}

func (o *LifeOptions) setName(s string) error {
	if err := runner.CheckName(s); err != nil {
		return fmt.Errorf("not a name: %w", err)
	}
	o.Name = s
	return nil
}

func isName(s string) bool { return runner.CheckName(s) == nil }

var ErrUser = errors.New("not UID or UID:GID in numbers (such as 1000 or 1000:100)")

// SetUser parses numeric ids. It keeps names as they are, because only an image can resolve them.
func (o *ProcessOptions) SetUser(s string) error {
	o.User, o.UserName = nil, ""
	uid, gid, both := strings.Cut(s, ":")
	if !both {
		gid = uid
	}
	u, uok := runner.ParseID(uid)
	g, gok := runner.ParseID(gid)
	switch {
	case uok && gok:
		o.User = &runner.User{UID: u, GID: g}
	case (uok || isUserName(uid)) && (gok || isUserName(gid)):
		o.UserName = s
	default:
		return ErrUser
	}
	return nil
}

func isUserName(s string) bool { return isName(s) && strings.Trim(s, "0123456789") != "" }

func (o *ProcessOptions) SetWorkdir(s string) error {
	if !strings.HasPrefix(s, "/") {
		return errors.New("not an absolute path inside the sandbox")
	}
	if strings.ContainsRune(s, 0) {
		return errors.New("has a NUL byte")
	}
	o.Workdir = s
	return nil
}

// RootFlags returns the image flags of run and create.
func (o *rootOptions) RootFlags() cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupSandbox, Long: "image", Arg: "NAME", Complete: cmdline.Image, Set: o.setImage,
			Help: "root filesystem: host (this machine's /usr, read-only), a name from demesne images --all, a reference, or dir:ROOTFS (default $DEMESNE_DEFAULT_IMAGE or host)"},
		{Group: app.GroupSandbox, Long: "pull", Arg: "WHEN", Words: pullPolicies, Set: cmdline.Word(&o.Pull, pullPolicies),
			Help: "when to ask the registry: missing, always or never (default missing)"},
	}
}

// BuildFlag is a flag of verbs that call OpenDevcontainer.
func (o *rootOptions) BuildFlag() cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupSandbox, Long: "build", Arg: "DIR", Complete: cmdline.Directory, Set: cmdline.Text(&o.build),
		Help: "build the image from the Containerfile or Dockerfile of a directory, with unchanged steps from the cache; its path may have no symbolic link"}}
}

func (o *ProcessOptions) EntrypointFlag() cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupCommand, Long: "entrypoint", Arg: "PROGRAM", Set: o.setEntrypoint,
		Help: "replace the image's entrypoint and command by a program; empty removes both"}}
}

// OutFlag is the flag for the output directory.
func OutFlag(to *string) cmdline.Flag {
	return cmdline.Flag{Group: app.GroupSandbox, Long: "out", Arg: "DIR", Complete: cmdline.Directory, Set: cmdline.Text(to),
		Help: "directory for /out; a new one is readable only by you (default a new one in $DEMESNE_OUTPUT_ROOT or ~/.demesne/out)"}
}

func (o *LifeOptions) NameFlag() cmdline.Flag {
	return cmdline.Flag{Group: app.GroupSandbox, Long: "name", Arg: "NAME", Set: o.setName,
		Help: "name of the sandbox, for other commands (default its id)"}
}

// KeyFlag is a flag of create, run and exec. With it, exec takes no sandbox argument.
func (o *LifeOptions) KeyFlag(help string) cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupSandbox, Long: "key", Arg: "KEY", Set: cmdline.Text(&o.Key), Help: help}}
}

// ReplaceFlag is a flag of create and run.
func (o *LifeOptions) ReplaceFlag() cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupSandbox, Long: "replace", Set: cmdline.On(&o.Replace),
		Help: "first remove the sandbox that has the key, with its files"}}
}

// LifeFlags returns the flags about the lifetime of a persistent sandbox.
func (o *LifeOptions) LifeFlags() cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupSandbox, Long: "ttl", Arg: "DURATION", Set: cmdline.Duration(&o.TTL),
			Help: "how long the sandbox exists after its last command (default 48h)"},
		{Group: app.GroupSandbox, Long: "max-age", Arg: "DURATION", Set: cmdline.Duration(&o.MaxAge),
			Help: "how long the sandbox exists at most, even in use (default no limit)"},
		{Group: app.GroupSandbox, Long: "pause-idle", Arg: "DURATION", Set: cmdline.Duration(&o.PauseIdle),
			Help: "pause its processes (SIGSTOP) after this time without a command, until the next command; paused servers do not answer (default never)"},
	}
}
