package cli

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
		"--cap-drop": needless, "--init": needless, "--unshare-all": needless, "--unshare-net": needless,
		"--die-with-parent": needless, "--new-session": needless,
	}
}

// programHabits are verbs of docker and podman.
func programHabits() map[string]string {
	const (
		list  = "demesne ls lists sandboxes; demesne jobs lists background jobs"
		end   = "demesne stop ID ends the processes of a sandbox; demesne cancel JOB ends a background job"
		again = "demesne exec ID -- CMD starts a stopped sandbox again"
		clean = "demesne gc removes unused data; demesne rm ID removes a sandbox"
		allow = "demesne egress allow ID NAME adds a network rule; demesne run --allow-domain NAME allows a name from the start"
	)
	return map[string]string{
		"kill": end, "pause": "demesne create --pause-idle DURATION pauses an unused sandbox", "unpause": again,
		"ps": list, "list": list, "container": list, "sandbox": list, "start": again, "restart": again,
		"image": "demesne images lists images",
		"load":  "demesne pull docker-archive:FILE copies an archive into the store; demesne import makes an image of a root filesystem",
		"prune": clean, "system": clean, "remove": clean, "delete": clean, "network": allow, "volume": "demesne run --workspace DIR or --mount DIR",
		"info": "demesne check reports what this machine supports", "doctor": "demesne check reports what this machine supports",
		"shell": "demesne run -it -- bash, or demesne exec -it ID -- bash", "sh": "demesne run -it -- sh",
	}
}

// pushHabits are flags of podman push and skopeo copy.
func pushHabits() map[string]string {
	const login = "demesne login stores a password; --authfile FILE names another file with one"
	return map[string]string{
		"--creds": login, "--dest-creds": login, "--insecure": "use --tls-verify=false", "--dest-tls-verify": "use --tls-verify",
		"--compression-format": "use --compression", "--digestfile": "demesne push -q prints the digest",
		"--sign-by-sigstore-private-key": "use --sign-by FILE", "--sign-by-sigstore": "keyless signatures (Fulcio, Rekor) are not supported: use --sign-by FILE", "--cert-dir": "put the certificate into ~/.config/containers/certs.d/REGISTRY",
	}
}

// loginHabits are flags of docker login and podman login.
func loginHabits() map[string]string {
	const password = "other users could see it: use --password-stdin, or type it"
	return map[string]string{"-p": password, "--password": password, "--insecure": "use --tls-verify=false"}
}

// stopHabits are flags of docker stop.
func stopHabits() map[string]string {
	const grace = "use --grace DURATION"
	return map[string]string{"-t": grace, "--time": grace, "--timeout": grace}
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
	h["-d"], h["--detach"] = "use --background", "use --background"
	delete(h, "--rm")
	return h
}
