package main

// The flags of each command. A group is a heading in --help.

const (
	groupSandbox = "Sandbox"
	groupNetwork = "Network"
	groupLimits  = "Limits"
	groupCommand = "Command"
	groupResult  = "Result"
	groupGeneral = "General"
)

func sandboxFlags(o *options) flagSet {
	return flagSet{
		{group: groupSandbox, long: "in", arg: "PATH[:NAME]", repeat: true, complete: aFile, set: list(&o.inputs, checkInput),
			help: "file or directory to show, read-only, at /in/NAME (default its own name)"},
		{group: groupSandbox, long: "socket", arg: "PATH[:NAME]", repeat: true, complete: aFile, set: list(&o.sockets, checkInput),
			help: "unix socket of this machine that the command may connect to, at /in/NAME; whoever listens there does what it says"},
		{group: groupSandbox, long: "out", arg: "DIR", complete: aDirectory, set: text(&o.out),
			help: "directory to bind at /out, made if missing, for you alone (default a fresh one under $DEMESNE_OUTPUT_ROOT or ~/.demesne/out)"},
		{group: groupSandbox, long: "workspace", arg: "DIR", complete: aDirectory, set: text(&o.workspace),
			help: "directory to bind, writable, at /workspace (default a scratch one, thrown away)"},
		{group: groupSandbox, long: "name", arg: "NAME", set: o.setName,
			help: "name to find the sandbox by while it lives (default its id)"},
		{group: groupSandbox, long: "require", arg: "LEVEL", complete: aWord, words: levels, set: o.setRequire,
			help: "refuse to run with less isolation than full, degraded or minimal"},
		{group: groupSandbox, long: "nesting", set: on(&o.nesting),
			help: "leave out what keeps the command from making sandboxes of its own (Landlock's file rules, the masks over /proc)"},
	}
}

func limitFlags(o *options) flagSet {
	return flagSet{
		{group: groupLimits, long: "memory", arg: "SIZE", set: sizeFlag(&o.limits.Memory, leastMemory),
			help: "memory, such as 512m or 2g, or none (default half of the machine's)"},
		{group: groupLimits, long: "cpus", arg: "N", set: cpusFlag(&o.limits.CPUs),
			help: "processors' worth of time, such as 0.5 or 2, or none (default none)"},
		{group: groupLimits, long: "pids", arg: "N", set: pidsFlag(&o.limits.PIDs),
			help: "processes and threads, or none (default 512)"},
		{group: groupLimits, long: "disk", arg: "SIZE", set: sizeFlag(&o.limits.Disk, leastDisk),
			help: "what may be written to /, /out and /workspace each, or none (default 2g)"},
	}
}

func commandFlags(o *options) flagSet {
	return flagSet{
		{group: groupCommand, short: 'c', arg: "TEXT", set: o.setShell,
			help: "run /bin/sh -c TEXT; the arguments that follow are its $0, $1, …"},
		{group: groupCommand, long: "interactive", short: 'i', set: on(&o.interactive),
			help: "pass stdin on (without it the command reads /dev/null)"},
		{group: groupCommand, long: "tty", short: 't', set: on(&o.tty),
			help: "give the command a terminal, made inside; from a terminal this passes stdin on too"},
		{group: groupCommand, long: "env", arg: "NAME[=VALUE]", repeat: true, set: list(&o.env, checkEnv),
			help: "set a variable; a NAME alone takes its value from here"},
		{group: groupCommand, long: "workdir", arg: "PATH", set: o.setWorkdir,
			help: "directory inside to start in (default the image's, or /workspace)"},
		{group: groupCommand, long: "user", arg: "UID[:GID]", set: o.setUser,
			help: "who to be inside, in numbers; GID is UID's unless given (default 0:0, or the image's user); at run and create --image also NAME[:GROUP], looked up in the image"},
		{group: groupCommand, long: "timeout", arg: "DURATION", set: durationFlag(&o.timeout),
			help: "end the command after 30s, 5m, 1h30m; a bare number is seconds (default never)"},
	}
}

func resultFlags(o *options) flagSet {
	return flagSet{
		{group: groupResult, long: "json", arg: "FILE", optional: true, complete: aFile, set: o.setJSON,
			help: "print result and receipt as JSON instead of the command's output, of which it has the last MiB; with =FILE (or =/dev/fd/3) write it there and stream as usual"},
		{group: groupResult, long: "trace", set: on(&o.trace),
			help: "print on stderr how long each stage took"},
	}
}

func runFlags(o *options) flagSet {
	return join(commandFlags(o), entrypointFlag(o), backgroundFlag(o), rootFlags(o), sandboxFlags(o),
		keyFlag(o, "run in the sandbox of this key, which stays: as with create"), replaceFlag(o), queueFlag(o), lifeFlags(o), networkFlags(&o.network), secretFlags(&o.network), askFlag(&o.network), limitFlags(o), resultFlags(o), manifestFlag(o))
}

func manifestFlag(o *options) flagSet {
	return flagSet{{group: groupResult, long: "manifest", set: on(&o.manifest),
		help: "write down the SHA-256 of each file that is left in /out, beside that directory: see verify"}}
}

func backgroundFlag(o *options) flagSet {
	return flagSet{{group: groupCommand, long: "background", set: on(&o.background),
		help: "leave it to a process of its own, and print the id of a job: see wait, logs, jobs and cancel"}}
}

func createFlags(o *options) flagSet {
	user := *commandFlags(o).find(func(f *flagDef) bool { return f.long == "user" })
	user.group = groupSandbox
	trace := *resultFlags(o).find(func(f *flagDef) bool { return f.long == "trace" })
	return join(rootFlags(o), sandboxFlags(o), flagSet{user}, keyFlag(o, "the sandbox that was made with this key, if there is one; flags that are left out are the sandbox's own, and one that differs is an error"), replaceFlag(o), shareFlag(o), lifeFlags(o), networkFlags(&o.network), secretFlags(&o.network), limitFlags(o), jsonFlag(o), flagSet{trace})
}

func shareFlag(o *options) flagSet {
	return flagSet{{group: groupSandbox, long: "share", arg: "DOOR", complete: aWord, words: shares, set: o.setShare,
		help: "let models use it by its id or name: mcp is all MCP servers of this user (default the command line alone)"}}
}

func execFlags(o *options) flagSet {
	return join(commandFlags(o), backgroundFlag(o), queueFlag(o), keyFlag(o, "instead of ID: the sandbox that was made with this key"), secretFlags(&o.network), resultFlags(o))
}

func jsonFlag(o *options) flagSet {
	return flagSet{{group: groupResult, long: "json", set: on(&o.json), help: "print JSON"}}
}

func lsFlags(o *options) flagSet {
	return join(jsonFlag(o), flagSet{{group: groupResult, long: "quiet", short: 'q', set: on(&o.quiet),
		help: "print the ids alone"}})
}

func helpFlags(o *options) flagSet {
	return flagSet{{group: groupResult, long: "markdown", set: on(&o.markdown),
		help: "print the reference of all commands in Markdown"}}
}

func noFlags(*options) flagSet { return nil }

func join(sets ...flagSet) flagSet {
	var all flagSet
	for _, s := range sets {
		all = append(all, s...)
	}
	return all
}
