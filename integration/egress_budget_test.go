package integration

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestEgressBudgets checks that requests, connections and bytes of a policy rule are bounded over the life of the
// sandbox, and that the excess is reported.
func TestEgressBudgets(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "python3")
		policy := n.file("policy.toml", `
[[rule]]
allow = "good.test:80"
max-requests = 2

[[rule]]
allow = "db.test:5432"
max-connections = 1

[[rule]]
allow = "git.test:22"
max-bytes = 1000
`, 0o644)
		r := n.inside(`for i in 1 2 3; do curl -sS http://good.test/$i; done
python3 - <<'E'
import socket
for _ in range(2):
    try: s = socket.create_connection(("db.test", 5432), 5); print(s.recv(100).decode().strip())
    except OSError as e: print(type(e).__name__)
s = socket.create_connection(("git.test", 22), 5)
got = len(s.recv(100))
try:
    while True:
        s.sendall(b"x" * 100); more = len(s.recv(100))
        if not more: break
        got += more
except OSError: pass
print("some" if 100 < got < 1000 else got)
E`, "--egress-file", policy)
		want := "hello from good.test\nhello from good.test\n" + `blocked by demesne: good.test:80: rule "good.test:80": its budget of 2 requests is used up` +
			"\n220 welcome\nConnectionResetError\nsome\n"
		if r.stdout != want {
			n.Errorf("%+v\nwant %q", r, want)
		}
		if !strings.Contains(r.stderr, `its budget of 1 connections is used up`) {
			n.Errorf("stderr: %s", r.stderr)
		}
	})
}

// greedyClient opens 10000 tunnels and keeps them. It prints how many were admitted, and whether it gets another
// after it has closed them.
const greedyClient = `
import socket, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
def tunnel():
    s = socket.create_connection(("198.18.0.1", 3128), 20)
    s.sendall(b"CONNECT db.test:5432 HTTP/1.1\r\nHost: x\r\n\r\n")
    return s if s.recv(100).startswith(b"HTTP/1.1 200") else None
held, full = [], None
for i in range(10000):
    try: held.append(tunnel())
    except OSError as e: full = full or e
print(len(held), type(full).__name__, flush=True)
input()
del held
while True:
    try: tunnel(); break
    except OSError: pass
print("again", flush=True)
`

// TestEscapeN25Neighbours checks that a sandbox that opens 10000 tunnels gets its share and no more (N25). Its
// neighbour gets as many, and the sandbox gets others once it closes its own. With a lower descriptor limit the
// share is smaller.
func TestEscapeN25Neighbours(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "python3")
		for limit, admitted := range map[int]string{4096: "170", 16384: "512"} {
			greedy := n.command("demesne", "run", "-i", "--allow-domain", "db.test:5432", "--", "python3", "-c", greedyClient)
			greedy.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$@"`, limit), "sh", greedy.Path}, greedy.Args[1:]...)
			greedy.Path = "/bin/sh"
			in, err := greedy.StdinPipe()
			if err != nil {
				n.Fatal(err)
			}
			out, err := greedy.StdoutPipe()
			if err != nil {
				n.Fatal(err)
			}
			if err := greedy.Start(); err != nil {
				n.Fatal(err)
			}
			said := bufio.NewReader(out)
			if got, err := said.ReadString('\n'); got != admitted+" ConnectionResetError\n" {
				n.Errorf("with %d descriptors: %q, %v", limit, got, err)
			}
			for range 3 {
				if r := n.inside("curl -sS -m 20 http://good.test/", "--allow-domain", "good.test"); r.stdout != "hello from good.test\n" {
					n.Errorf("the neighbour: %+v", r)
				}
			}
			io.WriteString(in, "\n")
			if got, err := said.ReadString('\n'); got != "again\n" {
				n.Errorf("when they are given back: %q, %v", got, err)
			}
			in.Close()
			if err := greedy.Wait(); err != nil {
				n.Error(err)
			}
			// The runner inherited the caller's descriptor limit, and would serve the next round with it.
			eventually(n, "the runner to end", func() bool { return len(runners(true)) == 0 })
		}
	})
}
