package integration

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestEgressLearn checks that --learn writes a policy of the access that a run needed. The policy passes the
// linter and bounds the next run, and access that it lacks is reported.
func TestEgressLearn(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "python3")
		result, policy := n.dir+"/run.json", n.dir+"/policy.toml"
		script := `curl -sS http://good.test/; curl -sS --noproxy '*' http://good.test/
python3 -c 'import socket; print(socket.create_connection(("db.test", 5432)).recv(100).decode())'; curl -sS http://inner.test:5432/ | head -c 18`
		want := "hello from good.test\nhello from good.test\n220 welcome\n\nblocked by demesne"
		if r := n.demesne("run", "--learn", "--json="+result, "-c", script); strings.TrimSpace(r.stdout) != want {
			n.Errorf("--learn: %+v", r)
		}
		var p struct {
			Log string `json:"egress_log"`
		}
		if err := json.Unmarshal([]byte(readFile(n, result)), &p); err != nil {
			n.Fatal(err)
		}
		suggested := n.demesne("egress", "suggest", p.Log)
		if err := os.WriteFile(policy, []byte(suggested.stdout), 0o644); err != nil {
			n.Fatal(err)
		}
		if r := n.demesne("egress", "lint", policy); r.code != 0 || strings.Count(suggested.stdout, ".test") != 2 {
			n.Errorf("suggested %+v, lint says %+v", suggested, r)
		}
		r := n.demesne("run", "--egress-file", policy, "-c", script+"; echo; curl -sS http://dark.test/; curl -sS http://good.test:5432/")
		if !strings.HasPrefix(r.stdout, want) || strings.Count(r.stdout, "blocked by demesne") != 3 || n.heard("dark.test") {
			n.Errorf("held to it: %+v", r)
		}
		if r := n.demesne("egress", "replay", policy, p.Log); r.code != 1 || !strings.HasPrefix(r.stdout, "blocked: inner.test:5432") {
			n.Errorf("replay: %+v", r)
		}
		// Deny rules are checked first, whatever allow rules exist.
		if r := n.demesne("run", "--egress", "open", "--deny-domain", "dark.test", "-c", "curl -sS http://dark.test/; curl -sS http://good.test/"); !strings.HasSuffix(r.stdout, "hello from good.test\n") ||
			!strings.Contains(r.stdout, `denied by rule "dark.test"`) || n.heard("dark.test") {
			n.Errorf("--deny-domain: %+v", r)
		}
	})
}

// TestEgressUnreachable checks that an allowed but unreachable host is reported as unreachable, not as blocked,
// and that the run continues. A direct connection by name ends at once.
func TestEgressUnreachable(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "python3")
		script := `curl -sS -w '%{http_code}\n' http://good.test:81/; curl -sS -o /dev/null -w '%{http_connect}\n' https://good.test:444/ 2>/dev/null
curl -sS -w '%{http_code}\n' http://nosuch.test/; curl -sS -m 20 --noproxy '*' http://good.test:81/ 2>/dev/null || echo ended
curl -sS http://good.test/`
		r := n.inside(script, "--allow-domain", "good.test:*", "--allow-domain", "nosuch.test")
		// The text of an error has the port of the query, which may have these digits too.
		if strings.Count(r.stdout, "502\n") != 3 || !strings.Contains(r.stdout, "connection refused") || strings.Contains(r.stderr, "blocked") || !strings.HasSuffix(r.stdout, "ended\nhello from good.test\n") {
			n.Errorf("no server: %+v", r)
		}
		n.extra = []string{"HTTP_PROXY=http://me:" + canary + "@127.0.0.1:9", "HTTPS_PROXY=http://me:" + canary + "@127.0.0.1:9"}
		r = n.inside(`curl -sS -w '%{http_code}\n' http://good.test/; curl -sS -o /dev/null -w '%{http_connect}\n' https://good.test/ 2>/dev/null; echo on`, "--allow-domain", "good.test")
		if strings.Count(r.stdout, "502\n") != 2 || !strings.Contains(r.stdout, "127.0.0.1:9") || strings.Contains(r.stdout+r.stderr, canary) || !strings.HasSuffix(r.stdout, "on\n") {
			n.Errorf("no upstream: %+v", r)
		}
	})
}
