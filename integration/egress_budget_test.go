package integration

import (
	"strings"
	"testing"
)

// What a policy file bounds is bounded: requests, connections and bytes of a rule, over the
// life of the sandbox, and what is over is told.
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
		want := "hello from good.test\nhello from good.test\n" + `blocked by demesne: good.test:80: rule "good.test:80": its budget of 2 requests is spent` +
			"\n220 welcome\nConnectionResetError\nsome\n"
		if r.stdout != want {
			n.Errorf("%+v\nwant %q", r, want)
		}
		if !strings.Contains(r.stderr, `its budget of 1 connections is spent`) {
			n.Errorf("stderr: %s", r.stderr)
		}
	})
}

// N25: a sandbox that holds all the connections it can get leaves its neighbour as many, and
// gets others when it gives them back.
func TestEscapeN25Neighbours(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "python3")
		greedy := n.command("demesne", "run", "--allow-domain", "good.test", "--", "python3", "-c", `
import socket, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held = []
for i in range(3000):
    try: s = socket.create_connection(("198.18.0.1", 3128), 5); s.sendall(b"CONNECT good.test:80 HTTP/1.1\r\n")
    except OSError: continue
    held.append(s)
print("up", flush=True)
import time; time.sleep(60)`)
		stop := n.start(greedy, "up")
		for range 3 {
			if r := n.inside("curl -sS -m 20 http://good.test/", "--allow-domain", "good.test"); r.stdout != "hello from good.test\n" {
				n.Errorf("the neighbour: %+v", r)
			}
		}
		stop()
	})
}
