package cli

import (
	"slices"

	"demesne/cli/app"
	"demesne/internal/cmdline"
)

// The flags of each command. A group is a heading in --help.

func sandboxFlags(o *options) cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupSandbox, Long: "in", Arg: "PATH[:NAME]", Repeat: true, Complete: cmdline.File, Set: cmdline.List(&o.inputs, checkInput),
			Help: "show a file or directory, read-only, at /in/NAME (default its own name)"},
		{Group: app.GroupSandbox, Long: "socket", Arg: "PATH[:NAME]", Repeat: true, Complete: cmdline.File, Set: cmdline.List(&o.sockets, checkInput),
			Help: "let the command connect to a unix socket of this machine, at /in/NAME; the server there obeys the command"},
		outFlag(&o.out),
		{Group: app.GroupSandbox, Long: "workspace", Arg: "DIR[:cow]", Complete: cmdline.Directory, Set: cmdline.Text(&o.workspace),
			Help: "writable directory for /workspace (default a temporary one); with :cow it stays as it is, see demesne apply"},
		nameFlag(&o.lifeOptions),
		{Group: app.GroupSandbox, Long: "require", Arg: "LEVEL", Words: levels, Set: cmdline.Word(&o.require, levels),
			Help: "refuse to run with less isolation: full, degraded or minimal"},
		{Group: app.GroupSandbox, Long: "nesting", Set: cmdline.On(&o.nesting),
			Help: "let the command make sandboxes: disable the Landlock file rules and the masks over /proc"},
	}
}

func limitFlags(o *isolationOptions) cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupLimits, Long: "memory", Arg: "SIZE", Set: cmdline.Memory(&o.limits.Memory),
			Help: "memory limit, such as 512m or 2g, or none (default half of the machine's)"},
		{Group: app.GroupLimits, Long: "cpus", Arg: "N", Set: cmdline.CPUs(&o.limits.CPUs),
			Help: "limit of processor time, in processors: 0.5, 2, or none (default none)"},
		{Group: app.GroupLimits, Long: "pids", Arg: "N", Set: cmdline.PIDs(&o.limits.PIDs),
			Help: "limit of processes and threads, or none (default 512)"},
		{Group: app.GroupLimits, Long: "disk", Arg: "SIZE", Set: cmdline.Disk(&o.limits.Disk),
			Help: "limit for data written to each of /, /out and /workspace, or none (default 2g)"},
		{Group: app.GroupLimits, Long: "files", Arg: "N", Set: cmdline.Files(&o.limits.Files),
			Help: "limit of open descriptors of each process (default 65536, or 4096 where no control group counts their memory)"},
	}
}

func commandFlags(o *processOptions) cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupCommand, Short: 'c', Arg: "TEXT", Set: o.setShell,
			Help: "run /bin/sh -c TEXT; the following arguments are $0, $1, …"},
		{Group: app.GroupCommand, Long: "interactive", Short: 'i', Set: cmdline.On(&o.interactive),
			Help: "forward stdin (default /dev/null)"},
		{Group: app.GroupCommand, Long: "tty", Short: 't', Set: cmdline.On(&o.tty),
			Help: "run on a new terminal inside; if stdin is a terminal, forward it too"},
		{Group: app.GroupCommand, Long: "env", Arg: "NAME[=VALUE]", Repeat: true, Set: cmdline.List(&o.env, app.CheckEnv),
			Help: "set a variable; NAME alone takes the value from this environment"},
		{Group: app.GroupCommand, Long: "workdir", Arg: "PATH", Set: o.setWorkdir,
			Help: "directory in the sandbox to start in (default that of --here or --workspace, else the image's, else /workspace)"},
		{Group: app.GroupCommand, Long: "user", Arg: "UID[:GID]", Set: o.setUser,
			Help: "numeric user and group in the sandbox; GID defaults to UID (default 0:0, or the image's user); with --image, run and create also take NAME[:GROUP]"},
		{Group: app.GroupCommand, Long: "timeout", Arg: "DURATION", Set: cmdline.Duration(&o.timeout),
			Help: "end the command after this time: 30s, 5m, 1h30m, or seconds (default never)"},
	}
}

func resultFlags(o *reportOptions) cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupResult, Long: "json", Arg: "FILE", Optional: true, Complete: cmdline.File, Set: o.setJSON,
			Help: "print result and receipt as JSON, with the last MiB of output, instead of streaming; =FILE (or =/dev/fd/3) writes it there and streams as usual"},
		{Group: app.GroupResult, Long: "trace", Set: cmdline.On(&o.trace),
			Help: "print the duration of each stage on stderr"},
	}
}

func (o *runOptions) flags() cmdline.Flags {
	return slices.Concat(commandFlags(&o.processOptions), languageFlag(&o.codeOptions), stepFlags(&o.stepOptions), envFileFlag(&o.processOptions), entrypointFlag(&o.processOptions), backgroundFlag(&o.background),
		rootFlags(&o.rootOptions), sandboxFlags(&o.options), dependencyFlag(&o.codeOptions), interiorFlags(&o.options), mountFlags(&o.mountOptions), cowFlag(&o.cowOptions),
		keyFlag(&o.lifeOptions, "run in the persistent sandbox of this key; make it if it does not exist"), replaceFlag(&o.lifeOptions),
		queueFlag(&o.queue), lifeFlags(&o.lifeOptions), networkFlags(&o.network), secretFlags(&o.network), askFlag(&o.network),
		limitFlags(&o.isolationOptions), resultFlags(&o.reportOptions), manifestFlag(&o.manifest))
}

func manifestFlag(to *bool) cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupResult, Long: "manifest", Set: cmdline.On(to),
		Help: "write a manifest: the SHA-256 sum of each file in /out, beside that directory"}}
}

func backgroundFlag(to *bool) cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupCommand, Long: "background", Set: cmdline.On(to),
		Help: "start a background job, and print its id; see wait, logs, jobs and cancel"}}
}

func (o *createOptions) flags() cmdline.Flags {
	user := *commandFlags(&o.processOptions).Long("user")
	user.Group = app.GroupSandbox
	language := languageFlag(&o.codeOptions)
	language[0].Group, language[0].Help = app.GroupSandbox, "language of --dependency"
	trace := *resultFlags(&o.reportOptions).Long("trace")
	return slices.Concat(rootFlags(&o.rootOptions), sandboxFlags(&o.options), dependencyFlag(&o.codeOptions), language, interiorFlags(&o.options), mountFlags(&o.mountOptions), cmdline.Flags{user},
		keyFlag(&o.lifeOptions, "return the sandbox that was made with this key, if it exists; omitted flags keep its values, and a differing one is an error"),
		replaceFlag(&o.lifeOptions), shareFlag(&o.lifeOptions), lifeFlags(&o.lifeOptions), networkFlags(&o.network), secretFlags(&o.network), limitFlags(&o.isolationOptions), app.JSONFlag(&o.json), cmdline.Flags{trace})
}

func shareFlag(o *lifeOptions) cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupSandbox, Long: "share", Arg: "FRONTEND", Words: shares, Set: cmdline.Word(&o.share, shares),
		Help: "let models use the sandbox by its id or name: mcp means all MCP servers of this user (default the command line alone)"}}
}

func (o *runOptions) execFlags() cmdline.Flags {
	return slices.Concat(commandFlags(&o.processOptions), languageFlag(&o.codeOptions), stepFlags(&o.stepOptions), envFileFlag(&o.processOptions), backgroundFlag(&o.background), queueFlag(&o.queue),
		keyFlag(&o.lifeOptions, "use the sandbox that was made with this key, instead of ID"), secretFlags(&o.network), resultFlags(&o.reportOptions))
}

func outFlag(to *string) cmdline.Flag {
	return cmdline.Flag{Group: app.GroupSandbox, Long: "out", Arg: "DIR", Complete: cmdline.Directory, Set: cmdline.Text(to),
		Help: "directory for /out; a new one is readable by you alone (default a new one in $DEMESNE_OUTPUT_ROOT or ~/.demesne/out)"}
}

func nameFlag(o *lifeOptions) cmdline.Flag {
	return cmdline.Flag{Group: app.GroupSandbox, Long: "name", Arg: "NAME", Set: o.setName,
		Help: "name of the sandbox, for other commands (default its id)"}
}
