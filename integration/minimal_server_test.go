package integration

import (
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMinimalServers checks that servers in a sandbox without namespaces serve its own processes, in both families, at
// the ports that programs expect, and that a closed server refuses connections. Without a network there are no servers, and the
// receipt says what they need.
func TestMinimalServers(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "python3")
		n.under = []string{tools + "/nons"}
		r := n.inside(`python3 - <<'E'
import http.server, socket, threading, urllib.request
def free(family):
    with socket.socket(family) as s:
        s.bind(("", 0)); return s.getsockname()[1]
for family, at, to in (2, "127.0.0.1", "127.0.0.1"), (2, "", "localhost"), (10, "::1", "::1"), (10, "::", "127.0.0.1"), (2, "0.0.0.0", "127.0.0.1"):
    port = free(family)
    s = socket.socket(family); s.bind((at, port)); s.listen(); s.listen(9)
    c = socket.create_connection((to, port), 60); a, peer = s.accept()
    c.sendall(b"served"); print(a.recv(9).decode(), s.getsockname()[1] == port, a.getpeername()[1] == c.getsockname()[1], end=" ")
    d = socket.create_connection(s.getsockname()[:2], 60); d.close()
    s.close(); a.close()
    try: socket.create_connection((to, port), 60)
    except ConnectionRefusedError: print("refused")
both = [socket.socket(f) for f in (2, 10)]
for s, at in zip(both, ("127.0.0.1", "::1")): s.setsockopt(1, 2, 1); s.bind((at, port)); s.listen()
late = socket.socket()
try: late.bind(("127.0.0.1", port))
except OSError as e: print(e.strerror)
h = http.server.ThreadingHTTPServer(("localhost", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=h.serve_forever, daemon=True).start()
print(urllib.request.build_opener(urllib.request.ProxyHandler({})).open("http://localhost:%d/" % h.server_port).status)
E`, "--allow-domain", "good.test")
		if want := strings.Repeat("served True True refused\n", 5) + "Address already in use\n200\n"; r.stdout != want {
			n.Errorf("%+v", r)
		}
		p, _ := n.report([]string{"--egress", "none"}, "python3", "-c", "import socket\ntry: socket.socket()\nexcept OSError as e: print(e.strerror)")
		if p.Stdout != "Address family not supported by protocol\n" || !slices.ContainsFunc(p.Receipt.Layers, func(l layer) bool {
			return l.Name == "network-namespace" && strings.Contains(l.Detail, "servers need a network, such as --allow-domain NAME")
		}) {
			n.Errorf("without a network: %+v", p)
		}
	})
}

// TestEscapeN45Servers attacks servers of sandboxes without a network namespace (N45): by processes of the machine from
// several addresses, and by another sandbox. A sandbox reaches no server of the machine at a port of its own.
func TestEscapeN45Servers(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "python3")
		n.under = []string{tools + "/nons"}
		script := n.file("serve.py", `import socket, sys
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
s.bind(("0.0.0.0", 0)); s.listen()
print("%s:%d" % s.getsockname(), flush=True)
if not sys.stdin.readline(): sys.exit("no attack")
c = socket.create_connection(("127.0.0.1", s.getsockname()[1])); a, peer = s.accept()
s.setblocking(False)
try: s.accept(); print("another")
except BlockingIOError: print("own" if peer == c.getsockname() else "foreign")
`, 0o644)
		cmd := n.command(tools+"/nons", bin+"/demesne", "run", "-i", "--allow-domain", "good.test", "--in", script, "--", "sh", "-c", `exec python3 "$DEMESNE_IN/serve.py"`)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			n.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			n.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			n.Fatal(err)
		}
		defer cmd.Wait()
		defer stdin.Close()
		buf := make([]byte, 64)
		k, err := stdout.Read(buf)
		at := strings.TrimSpace(string(buf[:k]))
		if err != nil || !strings.HasPrefix(at, "127.") {
			n.Fatalf("%q, %v", at, err)
		}
		for _, from := range []string{"127.0.0.1", "127.9.9.9", "8.2.2.2"} {
			d := net.Dialer{Timeout: 300 * time.Millisecond, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
			if c, err := d.Dial("tcp", at); err == nil {
				n.Errorf("connected from %s", from)
				c.Close()
			}
		}
		host, port, _ := strings.Cut(at, ":")
		r := n.inside(`python3 - `+host+" "+port+` <<'E'
import socket, sys
def attempt(host, port):
    try: socket.create_connection((host, port), 60); print("connected")
    except ConnectionRefusedError: print("refused")
for host in sys.argv[1], "127.0.0.1", "::1": attempt(host, int(sys.argv[2]))
s = socket.socket(); s.bind(("127.0.0.1", 5432)); s.listen() # where a server of the machine listens
c = socket.create_connection(("127.0.0.1", 5432)); print(s.accept()[1] == c.getsockname())
s.close(); attempt("127.0.0.1", 5432)
E`, "--allow-domain", "good.test")
		if r.stdout != "refused\nrefused\nrefused\nTrue\nrefused\n" {
			n.Errorf("another sandbox: %+v", r)
		}
		io.WriteString(stdin, "\n")
		if rest, _ := io.ReadAll(stdout); string(rest) != "own\n" {
			n.Errorf("the server has %q", rest)
		}
		if len(n.seen) > 0 {
			n.Errorf("seen %q", n.seen)
		}
	})
}
