package cli

import (
	"demesne/cli/app"
	"demesne/internal/cmdline"
)

// keyFlag is a flag of create, run and exec. With it, exec takes no sandbox argument.
func keyFlag(o *lifeOptions, help string) cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupSandbox, Long: "key", Arg: "KEY", Set: cmdline.Text(&o.key), Help: help}}
}

// replaceFlag is a flag of create and run.
func replaceFlag(o *lifeOptions) cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupSandbox, Long: "replace", Set: cmdline.On(&o.replace),
		Help: "first remove the sandbox that has the key, with its files"}}
}

// lifeFlags returns the flags about the lifetime of a persistent sandbox.
func lifeFlags(o *lifeOptions) cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupSandbox, Long: "ttl", Arg: "DURATION", Set: cmdline.Duration(&o.ttl),
			Help: "how long the sandbox exists after its last command (default 48h)"},
		{Group: app.GroupSandbox, Long: "max-age", Arg: "DURATION", Set: cmdline.Duration(&o.maxAge),
			Help: "how long the sandbox exists at most, even in use (default no limit)"},
		{Group: app.GroupSandbox, Long: "pause-idle", Arg: "DURATION", Set: cmdline.Duration(&o.pauseIdle),
			Help: "pause its processes (SIGSTOP) after this time without a command, until the next command; paused servers do not answer (default never)"},
	}
}

// queueFlag is a flag of exec and, with --key, of run.
func queueFlag(to *bool) cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupCommand, Long: "queue", Set: cmdline.On(to),
		Help: "run after all earlier --queue commands for this sandbox, calls of agents included"}}
}
