package proxyserver

import "golang.org/x/sys/unix"

// What a tunnel takes while it moves much: two sockets, and two pipes to splice through.
const perTunnel = 6

// mostConnections is what one sandbox may have at once, of all kinds.
const mostConnections = 512

// connections is how many a sandbox may have where a process may open so many descriptors: a
// quarter of them at most, so that what one holds open leaves others theirs. It is pure.
func connections(descriptors uint64) int {
	return int(min(mostConnections, max(descriptors/4/perTunnel, 1)))
}

// descriptors is how many this process may open. The Go runtime has raised that to the hard limit.
func descriptors() uint64 {
	var l unix.Rlimit
	if unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &l) != nil {
		return 0
	}
	return l.Cur
}
