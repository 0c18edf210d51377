package integration

import (
	"strings"
	"testing"
)

// TestEgressPorts checks the fallback for kernels without tproxy. Each port named by the policy gets listeners of
// its own, including ports of rules added later, and the receipt says so.
func TestEgressPorts(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "python3")
		go n.echo(n.listen("8.1.1.1:7777"))
		old := func(args ...string) result {
			return n.finish(n.command(tools+"/nons", append([]string{"--netfilter", bin + "/demesne"}, args...)...))
		}
		if r := old("create", "--name", "old", "--allow-domain", "good.test:80,443", "--allow-domain", "db.test:5432"); r.code != 0 {
			n.Fatalf("create: %+v", r)
		}
		defer old("rm", "old")
		dial := func(host, port string) string {
			r := old("exec", "old", "--", "python3", "-c", `
import socket, sys
try: s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5); print(s.recv(100).decode(), end="")
except OSError as e: print(type(e).__name__)`, host, port)
			return strings.TrimSpace(r.stdout)
		}
		receipt := func() string { return old("inspect", "old").stdout }
		if got := old("exec", "old", "--", "sh", "-c", "curl -sS --noproxy '*' http://good.test/; curl -sS http://good.test/").stdout; got != strings.Repeat("hello from good.test\n", 2) {
			n.Errorf("HTTP: %q", got)
		}
		if got := dial("db.test", "5432"); got != "220 welcome" {
			n.Errorf("the policy's own port: %q", got)
		}
		if got := dial("db.test", "7777"); got != "ConnectionRefusedError" {
			n.Errorf("a port of no rule: %q", got)
		}
		if got := receipt(); !strings.Contains(got, "TCP ports [80 443 5432] of an allowed name") || !strings.Contains(got, "nft_tproxy") {
			n.Errorf("receipt: %s", got)
		}
		if r := old("egress", "allow", "old", "db.test:7777"); r.code != 0 {
			n.Errorf("allow: %+v", r)
		}
		if got := dial("db.test", "7777"); got != "220 welcome" {
			n.Errorf("a port that was allowed later: %q", got)
		}
		if got := receipt(); !strings.Contains(got, "[80 443 5432 7777]") {
			n.Errorf("receipt: %s", got)
		}
	})
}
