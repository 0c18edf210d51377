package integration

import (
	"net"
	"testing"
)

// TestEscapeN29AbstractSockets checks that a sandbox, with or without egress, reaches no abstract socket of the
// machine or of another sandbox (N29). Each has its own network namespace.
func TestEscapeN29AbstractSockets(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "python3")
		for _, network := range []string{"unix", "unixpacket"} {
			l, err := net.Listen(network, "@"+n.dir+network)
			if err != nil {
				n.Fatal(err)
			}
			n.Cleanup(func() { l.Close() })
		}
		server := n.command("demesne", "run", "--allow-domain", "good.test", "--", "python3", "-c", `
import socket
l = socket.socket(socket.AF_UNIX); l.bind("\0in-a-sandbox"); l.listen(); print("up", flush=True); l.accept(); print("met")`)
		stop := n.start(server, "up")
		for _, flags := range [][]string{nil, {"--allow-domain", "good.test"}} {
			r := n.inside(`tail -n +2 /proc/net/unix; python3 - <<'E'
import socket
for kind in socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM:
    for name in "`+n.dir+`unix", "`+n.dir+`unixpacket", "in-a-sandbox":
        try: socket.socket(socket.AF_UNIX, kind).connect("\0" + name); print("connected to", name)
        except OSError: pass
E`, flags...)
			if r.code != 0 || r.stdout != "" {
				n.Errorf("%v: %+v", flags, r)
			}
		}
		stop()
	})
}

// TestEscapeN30Families checks that only four socket families exist in a sandbox with a network, and of netlink
// only the route protocol (N30).
func TestEscapeN30Families(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "python3")
		r := n.inside(`python3 - <<'E'
import socket
had = set()
for family in range(64):
    for kind in 1, 2, 3, 4, 5, 10:
        for protocol in range(64) if family == 16 else (0, 1, 6, 17, 132, 255):
            try: socket.socket(family, kind, protocol).close()
            except (OSError, OverflowError): continue
            had.add((family, kind if family != 16 else protocol))
print(sorted(had))
E`, "--allow-domain", "good.test")
		// AF_UNIX 1: stream, datagrams (types 2 and 3) and packets; AF_INET 2 and AF_INET6 10: streams and
		// datagrams; AF_NETLINK 16: protocol 0.
		if r.stdout != "[(1, 1), (1, 2), (1, 3), (1, 5), (2, 1), (2, 2), (10, 1), (10, 2), (16, 0)]\n" {
			n.Errorf("families: %+v", r)
		}
	})
}
