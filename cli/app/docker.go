package app

import "demesne/internal/cmdline"

// DockerFlag is a flag of run, create and agent.
func DockerFlag(on *bool) cmdline.Flags {
	return cmdline.Flags{{Group: GroupSandbox, Long: "docker", Set: cmdline.On(on),
		Help: "give the sandbox a Docker socket, whose containers are sandboxes with its rules and, together, at most its limits"}}
}
