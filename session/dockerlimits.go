package session

import "demesne/runner"

// DockerLimits returns the limits of a sandbox with a Docker socket, whose caller asks for these. Memory and processors are lent to
// its containers, see [runner.LimitChange]. Processes and disk cannot change on every machine while it runs: the sandbox has half,
// and all its containers together have as much. Where its caller names none, each half is the usual limit.
func DockerLimits(l runner.Limits) runner.Limits {
	if l.PIDs > 0 {
		l.PIDs /= 2
	}
	if l.Disk > 0 {
		l.Disk /= 2
	}
	return l
}
