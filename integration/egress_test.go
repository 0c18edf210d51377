package integration

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestEgressAllowed checks that allowed access works for programs with and without proxy support.
func TestEgressAllowed(t *testing.T) {
	onLevels(t, func(n *internet) {
		program(n, "curl")
		r := n.inside(`set -e
curl -sS http://good.test/a
curl -sS --cacert /in/ca.pem https://good.test/b
curl -sS --noproxy '*' http://good.test/c
curl -sS --noproxy '*' --cacert /in/ca.pem https://good.test/d
curl -sS --socks5-hostname 198.18.0.1:3128 http://good.test/e
env -i /usr/bin/curl -sS http://good.test/f
curl -sS -6 --noproxy '*' http://good.test/g
`, "--allow-domain", "good.test")
		if want := strings.Repeat("hello from good.test\n", 7); r.code != 0 || r.stdout != want {
			n.Errorf("allowed: %+v", r)
		}
		if strings.Contains(r.stderr, "blocked") {
			n.Errorf("something was blocked: %s", r.stderr)
		}
	})
}

// TestEgressProtocols checks that any TCP protocol works by name, whichever side speaks first.
func TestEgressProtocols(t *testing.T) {
	onLevels(t, func(n *internet) {
		program(n, "python3")
		r := n.inside(`python3 - <<'E'
import socket
for host, port in (("db.test", 5432), ("git.test", 22)):
    s = socket.create_connection((host, port), 5)
    print(s.recv(100).decode().strip())
    s.sendall(b"over there?\n"); print(s.recv(100).decode().strip())
    s.shutdown(socket.SHUT_WR); print(s.recv(10))
E`, "--allow-domain", "db.test:5432", "--allow-domain", "git.test:22")
		if want := strings.Repeat("220 welcome\nover there?\nb''\n", 2); r.code != 0 || r.stdout != want {
			n.Errorf("by name: %+v", r)
		}
	})
}

func TestEgressGit(t *testing.T) {
	onLevels(t, func(n *internet) {
		git := program(n, "git")
		need(n, exists("/usr/lib/git-core/git-http-backend"), "git-http-backend")
		work := n.dir + "/work"
		for _, args := range [][]string{
			{"init", "-q", work}, {"-C", work, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "maintenance.auto=false", "commit", "-q", "--allow-empty", "-m", "first"},
			{"clone", "-q", "--bare", work, n.dir + "/repo.git"},
		} {
			cmd := exec.Command(git, args...)
			cmd.Env = []string{"HOME=" + n.home, "PATH=" + os.Getenv("PATH")}
			if out, err := cmd.CombinedOutput(); err != nil {
				n.Fatalf("git %v: %v: %s", args, err, out)
			}
		}
		r := n.inside(`set -e
git clone -q http://git.test/repo.git a && git -C a log --format=%s
env -i PATH="$PATH" GIT_CONFIG_NOSYSTEM=1 GIT_SSL_CAINFO=/in/ca.pem git clone -q https://git.test/repo.git b && git -C b log --format=%s
git clone -q http://dark.test/repo.git c 2>&1 | grep -o '403'`, "--allow-domain", "git.test")
		if r.stdout != "first\nfirst\n403\n" || strings.Count(r.stderr, "blocked: ") != 1 {
			n.Errorf("git: %+v", r)
		}
	})
}

// TestEgressDenied checks that a refusal names the host and the reason: to the program, on stderr, and in the
// result.
func TestEgressDenied(t *testing.T) {
	onInternet(t, func(n *internet) {
		flags := []string{"--allow-domain", "good.test:443"}
		r := n.inside(`curl -sS http://dark.test/; curl -sS http://good.test/`, flags...)
		if !strings.Contains(r.stdout, "blocked by demesne: dark.test:80: no rule") || !strings.Contains(r.stdout, `good.test:80: rule "good.test:443" does not cover port 80`) {
			n.Errorf("403 says: %+v", r)
		}
		if !strings.Contains(r.stderr, "blocked: dark.test:80 (no rule)") {
			n.Errorf("stderr says: %s", r.stderr)
		}
		j := n.demesne("run", "--json", "--allow-domain", "good.test:443", "--", "curl", "-sS", "http://dark.test/")
		var p struct {
			Denied []struct {
				Host, Reason string
				Port, Times  int
			}
			Receipt struct {
				Network string
				Layers  []layer
			}
		}
		if err := json.Unmarshal([]byte(j.stdout), &p); err != nil {
			n.Fatalf("%v: %+v", err, j)
		}
		if len(p.Denied) != 1 || p.Denied[0].Host != "dark.test" || p.Denied[0].Port != 80 || p.Denied[0].Reason != "no rule" {
			n.Errorf("result: %+v", p)
		}
		if p.Receipt.Network != "filtered: 1 rule" || !strings.Contains(fmt.Sprint(p.Receipt.Layers), "{gateway held") {
			n.Errorf("receipt: %+v", p.Receipt)
		}
		if n.heard("dark.test") {
			n.Errorf("dark.test was asked: %q", n.seen)
		}
	})
}

// TestEgressNone checks that without egress flags there is no network, and that no program waits for one.
func TestEgressNone(t *testing.T) {
	onInternet(t, func(n *internet) {
		r := n.inside(`getent hosts good.test; curl -sS --noproxy '*' http://8.1.1.1/; cat /proc/net/dev | grep -c :; env | grep -ci _proxy; grep -c nameserver /etc/resolv.conf`)
		if r.stdout != "1\n0\n0\n" || len(n.seen) > 0 {
			n.Errorf("no egress: %+v; seen %q", r, n.seen)
		}
	})
}

// TestEgressOpen checks that open egress reaches every public address, and is refused beside inputs unless
// explicitly allowed.
func TestEgressOpen(t *testing.T) {
	onLevels(t, func(n *internet) {
		r := n.demesne("run", "--egress", "open", "--", "sh", "-c", "curl -sS http://dark.test/; curl -sS http://8.1.1.1/; curl -sS http://inner.test:5432/; curl -sS http://own.test/; curl -sS http://169.254.169.254/")
		if strings.Count(r.stdout, "hello from") != 2 || strings.Count(r.stdout, "blocked by demesne") != 3 || n.heard("127.0.0.1") || n.heard("own.test") {
			n.Errorf("open: %+v; seen %q", r, n.seen)
		}
		for _, flags := range [][]string{{"--egress", "open"}, {"--allow-domain", "0.0.0.0/0"}, {"--learn"}, {"--learn", "--allow-open-with-inputs"}} {
			if r := n.inside("true", flags...); r.code != 125 || !strings.Contains(r.stderr, "the command could send your files to any server") {
				n.Errorf("%v with an input: %+v", flags, r)
			}
		}
		if r := n.inside("curl -sS http://dark.test/", "--egress", "open", "--allow-open-with-inputs"); r.code != 0 {
			n.Errorf("lifted: %+v", r)
		}
	})
}

// TestEgressHostLoopback checks that a sandbox reaches a server on the machine's loopback by a name that the
// sandbox's own loopback does not have. The rules must allow both the name and the address.
func TestEgressHostLoopback(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "python3")
		script := `python3 - <<'E'
import socket
for name in "localhost.", "localhost", "127.0.0.1":
    try: print(socket.create_connection((name, 5432), 5).recv(100).decode().strip())
    except OSError as e: print(type(e).__name__)
E`
		for _, c := range []struct{ rules, want string }{
			{"localhost:5432 127.0.0.1:5432", "220 welcome\nConnectionRefusedError\nConnectionRefusedError\n"},
			{"localhost:5432", "ConnectionResetError\nConnectionRefusedError\nConnectionRefusedError\n"},
			{"127.0.0.1:5432", "gaierror\nConnectionRefusedError\nConnectionRefusedError\n"},
		} {
			var flags []string
			for _, rule := range strings.Fields(c.rules) {
				flags = append(flags, "--allow-domain", rule)
			}
			if r := n.inside(script, flags...); r.stdout != c.want {
				n.Errorf("%s: %+v", c.rules, r)
			}
		}
	})
}

func TestEgressBadRules(t *testing.T) {
	b := newBox(t)
	for rule, instead := range map[string]string{
		"*.com": "*.example.com", "good.test:0": "good.test:443", "git@good.test:a/b": "good.test:22", "*": "example.com", "https://good.test": "example.com", "a b": "",
	} {
		r := b.demesne("run", "--allow-domain", rule, "--", "true")
		if r.code != 125 || !strings.Contains(r.stderr, rule) || instead != "" && !strings.Contains(r.stderr, "hint: ") || !strings.Contains(r.stderr, instead) {
			t.Errorf("rule %q: %+v", rule, r)
		}
	}
	r := b.demesne("run", "--secret", "T=env:PATH", "--secret-for", "T=good.test", "--", "true")
	if r.code != 125 || !strings.Contains(r.stderr, "has no network") {
		t.Errorf("a secret without a network: %+v", r)
	}
}

// TestEgressUpstream checks that the host's own proxy is used for names, with its password, and that no sandbox
// sees the password.
func TestEgressUpstream(t *testing.T) {
	onLevels(t, func(n *internet) {
		var auth string
		proxy := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			auth = r.Header.Get("Proxy-Authorization")
			fmt.Fprintf(w, "upstream was asked for %s\n", r.URL)
		})}
		n.Cleanup(func() { proxy.Close() })
		go proxy.Serve(n.listen("127.0.0.1:8118"))
		n.extra = []string{"HTTP_PROXY=http://me:" + canary + "@127.0.0.1:8118"}
		r := n.inside(`env; curl -sS http://far.test/`, "--allow-domain", "far.test")
		if !strings.Contains(r.stdout, "upstream was asked for http://far.test/") || auth == "" || strings.Contains(r.stdout+r.stderr, canary) {
			n.Errorf("upstream: %q: %+v", auth, r)
		}
	})
}

// TestEgressPublish checks that a server in a sandbox is reachable from outside on the published port, and on no
// other.
func TestEgressPublish(t *testing.T) {
	onInternet(t, func(n *internet) {
		sock := n.dir + "/s"
		cmd := n.command("demesne", "run", "--publish", "127.0.0.1:8080:3000", "--publish", "unix:"+sock+":3000", "--",
			"python3", "-c", `
import socket
l = socket.create_server(("127.0.0.1", 3000))
for i in range(3):
    c, _ = l.accept(); c.sendall(b"from inside " + c.recv(10)); c.recv(1); c.close() # the client has closed: the end of the sandbox cuts connections`)
		if err := cmd.Start(); err != nil {
			n.Fatal(err)
		}
		for network, at := range map[string]string{"tcp": "127.0.0.1:8080", "unix": sock} {
			eventually(n, "an answer on "+at, func() bool { return dialInside(network, at) == "from inside hi" })
		}
		// Another sandbox reaches it like any server on the machine's loopback.
		r := n.demesne("run", "--allow-domain", "localhost:8080", "--allow-domain", "127.0.0.1:8080", "--", "python3", "-c", `
import socket
s = socket.create_connection(("localhost.", 8080)); s.sendall(b"ho"); print(s.recv(100).decode())`)
		if r.stdout != "from inside ho\n" {
			n.Errorf("from another sandbox: %+v", r)
		}
		if err := cmd.Wait(); err != nil {
			n.Error(err)
		}
		if exists(sock) {
			n.Errorf("%s is left", sock)
		}
		if _, err := net.Dial("tcp", "127.0.0.1:8080"); err == nil {
			n.Error("it still listens")
		}
	})
}

func dialInside(network, at string) string {
	c, err := net.Dial(network, at)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	fmt.Fprint(c, "hi")
	b := make([]byte, 100)
	k, _ := c.Read(b)
	return string(b[:k])
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }
