package daemon

import "golang.org/x/sys/unix"

// perTunnel is the number of descriptors of a busy tunnel: two sockets, and two pipes to splice through.
const perTunnel = 6

// mostConnections bounds the concurrent connections of one sandbox, of all kinds.
const mostConnections = 512

// connections returns the limit for one sandbox in a process with that descriptor limit. One sandbox uses at most a
// quarter of the descriptors, so that others can connect too. It is pure.
func connections(descriptors uint64) int {
	return int(min(mostConnections, max(descriptors/4/perTunnel, 1)))
}

// descriptors returns the descriptor limit of this process. The Go runtime has raised it to the hard limit.
func descriptors() uint64 {
	var l unix.Rlimit
	if unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &l) != nil {
		return 0
	}
	return l.Cur
}
