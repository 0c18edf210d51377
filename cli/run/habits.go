package run

// runHabits are flags of docker run and bwrap, and of the tools around them.
func runHabits() map[string]string {
	const (
		files    = "use --mount SRC[:DST][:ro] for a path of this machine, --workspace DIR for /workspace, or --in PATH for a read-only input"
		publish  = "use --publish [ADDR:]PORT:INSIDE"
		detach   = "use --background for a job, or demesne create and demesne exec for a persistent sandbox"
		network  = "a sandbox has no network unless --egress MODE or --allow-domain NAME allows one"
		rights   = "a sandbox has no privileges and no devices of this machine; --nesting lets the command make sandboxes"
		needless = "leave it out: every sandbox is like that"
	)
	return map[string]string{
		"-v": files, "--volume": files, "--bind": files, "--ro-bind": files, "--bind-try": files, "--ro-bind-try": files,
		"-p": publish, "-P": publish, "--publish-all": publish, "--expose": publish,
		"-d": detach, "--detach": detach, "--restart": detach,
		"-e": "use --env NAME[=VALUE]", "--setenv": "use --env NAME=VALUE", "--clearenv": needless,
		"-w": "use --workdir PATH", "--chdir": "use --workdir PATH", "-u": "use --user UID[:GID]", "--uid": "use --user UID[:GID]",
		"-m": "use --memory SIZE", "--pids-limit": "use --pids N", "--storage-opt": "use --disk SIZE",
		"--network": network, "--net": network, "--share-net": network, "--dns": network,
		"--rm":         "leave it out: run removes its sandbox; demesne create makes a persistent one",
		"--privileged": rights, "--cap-add": rights, "--device": rights, "--gpus": rights, "--security-opt": rights,
		"--cap-drop": needless, "--unshare-all": needless, "--unshare-net": needless,
		"--die-with-parent": needless, "--new-session": needless,
	}
}

// execHabits are flags of docker exec, and those that only create can have.
func execHabits() map[string]string {
	h := runHabits()
	for _, flag := range []string{"-v", "--volume", "--bind", "--ro-bind", "-p", "-P", "--publish", "--mount", "--workspace", "--in", "--memory", "-m"} {
		h[flag] = "a sandbox gets this when it is made: see demesne create --help"
	}
	for _, flag := range []string{"--network", "--net", "--egress", "--allow-domain"} {
		h[flag] = "demesne egress allow ID NAME changes the rules of a sandbox that has a network"
	}
	h["--init"] = "a sandbox gets this when it is made: see demesne create --help"
	h["-d"], h["--detach"] = "use --background", "use --background"
	delete(h, "--rm")
	return h
}
