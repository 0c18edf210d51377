package launch

import (
	"path/filepath"
	"strings"

	"demesne/cli/app"
	"demesne/images/imageref"
	"demesne/internal/cmdline"
)

// The flags of each command. A group is a heading in --help.

func (o *Options) SandboxFlags() cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupSandbox, Long: "in", Arg: "PATH[:NAME]", Repeat: true, Complete: cmdline.File, Set: cmdline.List(&o.Inputs, app.CheckInput),
			Help: "show a file or directory, read-only, at /in/NAME (default its own name)"},
		{Group: app.GroupSandbox, Long: "socket", Arg: "PATH[:NAME]", Repeat: true, Complete: cmdline.File, Set: cmdline.List(&o.sockets, app.CheckInput),
			Help: "let the command connect to a unix socket of this machine, at /in/NAME; the server there obeys the command"},
		OutFlag(&o.out),
		{Group: app.GroupSandbox, Long: "workspace", Arg: "DIR[:cow]", Complete: cmdline.Directory, Set: cmdline.Text(&o.Mounts.Workspace),
			Help: "writable directory for /workspace (default a temporary one); with :cow it stays as it is, see demesne apply"},
		o.NameFlag(),
		{Group: app.GroupSandbox, Long: "require", Arg: "LEVEL", Words: levels, Set: cmdline.Word(&o.require, levels),
			Help: "refuse to run with less isolation: full, degraded or minimal"},
		{Group: app.GroupSandbox, Long: "nesting", Set: cmdline.On(&o.nesting),
			Help: "let the command make sandboxes: disable the Landlock file rules and the masks over /proc"},
	}
}

func (o *isolationOptions) LimitFlags() cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupLimits, Long: "memory", Arg: "SIZE", Set: cmdline.Memory(&o.Limits.Memory),
			Help: "memory limit, such as 512m or 2g, or none (default half of the machine's)"},
		{Group: app.GroupLimits, Long: "cpus", Arg: "N", Set: cmdline.CPUs(&o.Limits.CPUs),
			Help: "limit of processor time, in processors: 0.5, 2, or none (default none)"},
		{Group: app.GroupLimits, Long: "pids", Arg: "N", Set: cmdline.PIDs(&o.Limits.PIDs),
			Help: "limit of processes and threads, or none (default 512)"},
		{Group: app.GroupLimits, Long: "disk", Arg: "SIZE", Set: cmdline.Disk(&o.Limits.Disk),
			Help: "limit for data written to each of /, /out and /workspace, or none (default 2g)"},
		{Group: app.GroupLimits, Long: "files", Arg: "N", Set: cmdline.Files(&o.Limits.Files),
			Help: "limit of open descriptors of each process (default 65536, or 4096 where no control group counts their memory)"},
	}
}

func (o *ProcessOptions) CommandFlags() cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupCommand, Short: 'c', Arg: "TEXT", Set: o.setShell,
			Help: "run /bin/sh -c TEXT; the following arguments are $0, $1, …"},
		{Group: app.GroupCommand, Long: "interactive", Short: 'i', Set: cmdline.On(&o.Interactive),
			Help: "forward stdin (default /dev/null)"},
		{Group: app.GroupCommand, Long: "tty", Short: 't', Set: cmdline.On(&o.TTY),
			Help: "run on a new terminal inside; if stdin is a terminal, forward it too"},
		{Group: app.GroupCommand, Long: "env", Arg: "NAME[=VALUE]", Repeat: true, Set: cmdline.List(&o.Variables, app.CheckEnv),
			Help: "set a variable; NAME alone takes the value from this environment"},
		{Group: app.GroupCommand, Long: "workdir", Arg: "PATH", Set: o.SetWorkdir,
			Help: "directory in the sandbox to start in (default the directory of --here or --workspace, else the image's, else /workspace)"},
		{Group: app.GroupCommand, Long: "user", Arg: "UID[:GID]", Set: o.SetUser,
			Help: "numeric user and group in the sandbox; GID defaults to UID (default 0:0, or the image's user); with --image, run and create also take NAME[:GROUP]"},
		{Group: app.GroupCommand, Long: "timeout", Arg: "DURATION", Set: cmdline.Duration(&o.timeout),
			Help: "end the command after this time: 30s, 5m, 1h30m, or seconds (default never)"},
	}
}

func (o *reportOptions) ResultFlags() cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupResult, Long: "json", Arg: "FILE", Optional: true, Complete: cmdline.File, Set: o.setJSON,
			Help: "print result and receipt as JSON, with the last MiB of output, instead of streaming; =FILE (or =/dev/fd/3) writes it there and streams as usual"},
		{Group: app.GroupResult, Long: "trace", Set: cmdline.On(&o.Trace),
			Help: "print the duration of each stage on stderr"},
	}
}

func (o *LifeOptions) ShareFlag() cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupSandbox, Long: "share", Arg: "FRONTEND", Words: shares, Set: cmdline.Word(&o.share, shares),
		Help: "let models use the sandbox by its id or name: mcp means all MCP servers of this user (default the command line alone)"}}
}

// MountFlags returns the flags about directories of this machine.
func (o *Options) MountFlags() cmdline.Flags {
	return append(o.Mounts.Flags(), cmdline.Flag{Group: app.GroupSandbox, Long: "devcontainer", Arg: "DIR[:MODE]", Optional: true, Complete: cmdline.Directory, Set: o.SetDevcontainer,
		Help: "take image, mounts, variables and hooks from the devcontainer.json of a directory (default the working directory), and mount it as configured there; MODE is rw (the default), ro or cow"})
}

// SetDevcontainer sets the value of --devcontainer.
func (o *Options) SetDevcontainer(arg string) error {
	o.Asked = &arg
	return nil
}

// Absolute returns a flag with its value, with an absolute path. In the values of --image and --secret a path follows the
// word for its kind.
func Absolute(f *cmdline.Flag, value string) []string {
	switch {
	case f.Arg == "":
		return []string{"--" + f.Long}
	case f.Complete == cmdline.File || f.Complete == cmdline.Directory:
		value = absolute(value)
	case f.Complete == cmdline.Image:
		value = imageref.Absolute(value)
	case f.Long == "secret":
		if name, path, found := strings.Cut(value, "=file:"); found {
			value = name + "=file:" + absolute(path)
		}
	}
	if f.Optional {
		return []string{"--" + f.Long + "=" + value}
	}
	return []string{"--" + f.Long, value}
}

func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}
