package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// memberServers answers with argv[1] on TCP: on every address over IPv4 (7000) and IPv6 (7001), on the loopback (7002), and
// with HTTP (7080).
const memberServers = `
import http.server, socket, sys, threading
words = sys.argv[1]
def serve(l):
    while True:
        c, _ = l.accept(); c.sendall(words.encode()); c.close()
class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])) + words.encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *a): pass
web = http.server.ThreadingHTTPServer(("0.0.0.0", 7080), Web)
for l in (socket.create_server(("0.0.0.0", 7000)), socket.create_server(("::", 7001), family=socket.AF_INET6), socket.create_server(("127.0.0.1", 7002))):
    threading.Thread(target=serve, args=(l,), daemon=True).start()
print("ready", flush=True)
web.serve_forever()`

// memberClient has dial, which returns what a server says, or the name of the error.
const memberClient = `
import socket
def dial(host, port, source=None):
    try:
        s = socket.create_connection((host, port), 20, source_address=source)
        return s.recv(100).decode() or "nothing"
    except OSError as e:
        return type(e).__name__
`

// member starts a sandbox of a group with memberServers, which says "NAME of GROUP", and returns when its servers listen.
func (b *box) member(group, name string, flags ...string) *exec.Cmd {
	b.Helper()
	args := append([]string{"run", "--group", group, "--name", name}, flags...)
	cmd := b.command("demesne", append(args, "--", "python3", "-c", memberServers, name+" of "+group)...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		cmd.Stderr = os.Stderr
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cmd.Process.Signal(syscall.SIGTERM); cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		b.Fatalf("%s of %s says %q, %v", name, group, line, err)
	}
	return cmd
}

// from executes Python with memberClient in a new sandbox with these flags, and returns its output.
func (b *box) from(script string, flags ...string) string {
	b.Helper()
	args := append(append([]string{"run"}, flags...), "--", "python3", "-c", memberClient+script)
	r := b.demesne(args...)
	if r.code != 0 {
		b.Errorf("%q: %+v", flags, r)
	}
	return r.stdout
}

// TestGroup checks that sandboxes of a group reach each other by name, that each connection is in the log, and that the
// group ends together.
func TestGroup(t *testing.T) {
	b := newBox(t)
	program(b, "python3")
	db := b.member("shop", "db")
	got := b.from(`
import http.client
print(dial("db", 7000), dial("db", 7001), dial("DB.", 7000), dial("db", 9), sep="|")
c = http.client.HTTPConnection("198.18.0.1", 3128, timeout=20)
for body in "one ", "two ":
    c.request("POST", "http://db:7080/x", body); print(c.getresponse().read().decode())
l = socket.create_server(("web", 7000)); s = socket.create_connection(("web", 7000)); print("own name")
`, "--group", "shop", "--name", "web")
	if want := "db of shop|db of shop|db of shop|ConnectionResetError\none db of shop\ntwo db of shop\nown name\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r := b.demesne("run", "--json", "--group", "shop", "--name", "web", "--", "python3", "-c", memberClient+`print(dial("db", 7000))`)
	var answer struct {
		Log string `json:"egress_log"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil || answer.Log == "" {
		t.Fatalf("%v: %+v", err, r)
	}
	text, err := os.ReadFile(answer.Log)
	if want := `"via":"name","host":"db","port":7000,"verdict":"allowed","group":"shop"`; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("the log has no decision about db: %s, %v", text, err)
	}
	if r := b.demesne("egress", "suggest", answer.Log); strings.Contains(r.stdout, "db") {
		t.Errorf("a rule is suggested for a member: %+v", r)
	}
	if r := b.demesne("create", "--group", "shop", "--name", "web"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if r := b.demesne("exec", "web.shop", "--", "python3", "-c", memberClient+`print(dial("db", 7000))`); r.stdout != "db of shop\n" {
		t.Errorf("from a persistent sandbox: %+v", r)
	}
	if r := b.demesne("stop", "web.shop"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if r := b.demesne("exec", "web.shop", "--", "python3", "-c", memberClient+`print(dial("db", 7000))`); r.stdout != "db of shop\n" {
		t.Errorf("after a restart: %+v", r)
	}
	if r := b.demesne("rm", "--group", "shop"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	db.Wait() // it has ended with its group
	if r := b.demesne("ls", "-q"); r.stdout != "" {
		t.Errorf("left: %+v", r)
	}
	if r := b.demesne("rm", "--group", "shop"); r.code != 125 || !strings.Contains(r.stderr, `group "shop": it has no sandboxes`) {
		t.Errorf("an empty group: %+v", r)
	}
}

// TestEscapeN43Group checks that no sandbox outside a group reaches its members, and that a name leads to no other sandbox.
func TestEscapeN43Group(t *testing.T) {
	b, other := newBox(t), newBox(t)
	program(b, "python3")
	db := b.member("shop", "db", "--go-proxy")
	b.member("other", "db")
	b.member("shop", "web")

	t.Run("same names in another group", func(t *testing.T) {
		if got := b.from(`print(dial("db", 7000), dial("web", 7000))`, "--group", "other"); got != "db of other gaierror\n" {
			t.Errorf("%q", got)
		}
	})
	t.Run("outside", func(t *testing.T) {
		scan := `
found = [(h, p) for h in ("db", "web", "db.shop", "shop", "198.18.0.2", "198.19.0.1", "198.19.0.2", "fd64:6d65:736e::2", "fd64:6d65:736e:1::1", "127.0.0.1")
         for p in (7000, 7001, 7080) if "shop" in dial(h, p) or "other" in dial(h, p)]
print(found)
s = socket.create_connection(("198.18.0.1", 3128), 20)
s.sendall(b"CONNECT db:7000 HTTP/1.1\r\nHost: db:7000\r\n\r\n"); print(s.recv(12).decode())`
		for _, flags := range [][]string{{"--allow-domain", "a.test"}, {"--egress", "open"}, {"--group", "third"}} {
			got := b.from(scan, flags...)
			if got != "[]\nHTTP/1.1 403\n" && got != "[]\nHTTP/1.1 502\n" { // open: a name of the network that does not resolve
				t.Errorf("%q: %s", flags, got)
			}
		}
	})
	t.Run("loopback", func(t *testing.T) { // of the member: its own servers, and demesne's for it
		if got := b.from(`print(dial("db", 7002), dial("db", 8087), dial("db", 3128), dial("db", 53))`, "--group", "shop"); got != strings.Repeat("ConnectionResetError ", 3)+"ConnectionResetError\n" {
			t.Errorf("%q", got)
		}
	})
	t.Run("source", func(t *testing.T) { // another address of the sandbox's own end changes nothing
		got := b.from(`
print(dial("db", 7000, ("198.18.0.1", 0)), dial("db", 7000, ("198.19.0.1", 0)))
s = socket.socket(); s.setsockopt(socket.IPPROTO_IP, 15, 1) # IP_FREEBIND
try: s.bind(("198.19.0.7", 0)); s.settimeout(20); s.connect((socket.gethostbyname("db"), 7000)); print(s.recv(100))
except OSError as e: print("refused")`, "--group", "other")
		if strings.Contains(got, "shop") {
			t.Errorf("%q", got)
		}
	})
	t.Run("claims", func(t *testing.T) {
		for says, args := range map[string][]string{
			"name is in use":           {"--group", "shop", "--name", "db"},
			"lower-case letters":       {"--group", "shop", "--name", "good.test"},
			"not localhost or demesne": {"--group", "shop", "--name", "localhost"},
			"at most 63 bytes":         {"--group", strings.Repeat("g", 255), "--name", "a"},
		} {
			if r := b.demesne(append(append([]string{"run"}, args...), "--", "true")...); r.code != 125 || !strings.Contains(r.stderr, says) {
				t.Errorf("%q: %+v", args, r)
			}
		}
		// A rule names a host, never a member that has the same name. Its deny rules apply.
		if got := b.from(`print(dial("db", 7000))`, "--group", "shop", "--allow-domain", "db:7000"); strings.Contains(got, "shop") {
			t.Errorf("a member takes the place of a host: %q", got)
		}
		if got := b.from(`print(dial("db", 7000), dial("web", 7000))`, "--group", "shop", "--deny-domain", "db"); got != "gaierror web of shop\n" {
			t.Errorf("a denied member: %q", got)
		}
		if got := b.from(`print(dial("db", 7000), dial("db", 7080))`, "--group", "shop", "--deny-domain", "db:7080"); got != "db of shop ConnectionResetError\n" {
			t.Errorf("a denied port: %q", got)
		}
	})
	t.Run("data", func(t *testing.T) { // what one may read does not leave through another
		secret := b.file("secret", "s", 0o644)
		b.member("mixed", "reader", "--in", secret)
		r := b.demesne("run", "--group", "mixed", "--egress", "open", "--", "true")
		if r.code != 125 || !strings.Contains(r.stderr, `"reader": the group could send your files to any server`) {
			t.Errorf("open beside an input: %+v", r)
		}
		b.member("mixed2", "sender", "--egress", "open")
		if r := b.demesne("run", "--group", "mixed2", "--in", secret, "--", "true"); r.code != 125 || !strings.Contains(r.stderr, `"sender" and input`) {
			t.Errorf("an input beside open: %+v", r)
		}
		if r := b.demesne("create", "--group", "mixed", "--name", "late"); r.code != 0 {
			t.Fatalf("%+v", r)
		}
		if r := b.demesne("egress", "allow", "late.mixed", "0.0.0.0/0:443"); r.code == 0 || !strings.Contains(r.stderr, "could send your files") {
			t.Errorf("open later: %+v", r)
		}
		if r := b.demesne("rm", "late.mixed"); r.code != 0 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("fork", func(t *testing.T) {
		if r := b.demesne("create", "--group", "shop", "--name", "source"); r.code != 0 {
			t.Fatalf("%+v", r)
		}
		if r := b.demesne("fork", "--name", "copy", "source.shop"); r.code != 0 {
			t.Fatalf("%+v", r)
		}
		if r := b.demesne("exec", "copy", "--", "python3", "-c", memberClient+`print(dial("db", 7000))`); r.stdout != "gaierror\n" {
			t.Errorf("a fork is in the group: %+v", r)
		}
		if r := b.demesne("rm", "source.shop", "copy"); r.code != 0 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("another runner", func(t *testing.T) { // of another user, or of a caller with other rights
		if got := other.from(`print(dial("db", 7000))`, "--group", "shop"); got != "gaierror\n" {
			t.Errorf("%q", got)
		}
	})
	t.Run("ended", func(t *testing.T) {
		db.Process.Signal(syscall.SIGTERM)
		db.Wait()
		if got := b.from(`print(dial("db", 7000), dial("web", 7000))`, "--group", "shop"); got != "gaierror web of shop\n" {
			t.Errorf("%q", got)
		}
	})
}

// TestGroupProxyKilled checks that a group outlives demesne-proxy.
func TestGroupProxyKilled(t *testing.T) {
	b := newBox(t)
	program(b, "python3")
	b.member("shop", "db")
	cmd := b.command("demesne", "run", "--group", "shop", "-i", "--", "python3", "-c", memberClient+`
print(dial("db", 7000), flush=True); input()
for i in range(100):
    said = dial("db", 7000)
    if said == "db of shop": break
print(said)`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, _ := lines.ReadString('\n'); line != "db of shop\n" {
		t.Fatalf("before: %q", line)
	}
	for _, pid := range named("demesne-proxy") {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	fmt.Fprintln(in)
	if line, _ := lines.ReadString('\n'); line != "db of shop\n" {
		t.Errorf("afterwards: %q", line)
	}
	cmd.Wait()
}

// TestServeGroups checks groups and the users of commands over HTTP: a group belongs to one namespace.
func TestServeGroups(t *testing.T) {
	b := newBox(t)
	program(b, "python3")
	s, alice, bob := b.tenants()
	defer s.stop(syscall.SIGTERM)
	operator := tenant{t, s.url, s.key}
	start := func(c tenant, words string) {
		t.Helper()
		c.get("POST", "/v1/sandboxes", `{"name":"db","group":"shop"}`)
		line, _ := json.Marshal(map[string]any{"argv": []string{"python3", "-c", `
import socket, subprocess, sys
if len(sys.argv) == 2:
    p = subprocess.Popen([sys.executable, "-c", sys.stdin.read(), sys.argv[1]], stdout=subprocess.PIPE, text=True, start_new_session=True)
    print(p.stdout.readline(), end="")`, words}, "stdin": memberServers})
		if said := fmt.Sprint(c.get("POST", "/v1/sandboxes/db.shop/exec", string(line))["stdout"]); !strings.Contains(said, "ready") {
			t.Fatalf("%s: %s", words, said)
		}
	}
	start(alice, "alice's")
	start(bob, "bob's")
	start(operator, "the operator's")
	ask := func(c tenant, flags string) string {
		t.Helper()
		line, _ := json.Marshal(memberClient + `print(dial("db", 7000), end="")`)
		return fmt.Sprint(c.get("POST", "/v1/run", `{"argv":["python3","-c",`+string(line)+`]`+flags+`}`)["stdout"].(map[string]any)["text"])
	}
	for words, c := range map[string]tenant{"alice's": alice, "bob's": bob, "the operator's": operator} {
		if got := ask(c, `,"group":"shop"`); got != words {
			t.Errorf("%s member says %q", words, got)
		}
		if got := ask(c, `,"group":"none"`); got != "gaierror" {
			t.Errorf("another group of %s: %q", words, got)
		}
	}
	if status, text := bob.send("DELETE", "/v1/groups/shop", ""); status != 204 {
		t.Errorf("%d %s", status, text)
	}
	if got := ask(bob, `,"group":"shop"`); got != "gaierror" {
		t.Errorf("after the end: %q", got)
	}
	if got := ask(alice, `,"group":"shop"`); got != "alice's" {
		t.Errorf("bob has removed alice's group: %q", got)
	}
	for user, want := range map[string]string{"0": "0\n", "root": "0\n", "": "0\n"} {
		got := alice.get("POST", "/v1/sandboxes/db.shop/exec", `{"command":"id -u","user":"`+user+`"}`)["stdout"].(map[string]any)["text"]
		if got != want {
			t.Errorf("user %q: %q", user, got)
		}
	}
	if status, text := alice.send("POST", "/v1/sandboxes/db.shop/exec", `{"command":"id","user":"nosuch"}`); status != 422 || !strings.Contains(text, "no such account") {
		t.Errorf("%d %s", status, text)
	}
	if status, text := alice.send("POST", "/v1/run", `{"command":"id","user":"nosuch"}`); status != 400 || !strings.Contains(text, `user \"nosuch\"`) {
		t.Errorf("%d %s", status, text)
	}
	for _, c := range []tenant{alice, operator} {
		if status, text := c.send("DELETE", "/v1/groups/shop", ""); status != 204 {
			t.Errorf("%d %s", status, text)
		}
	}
}

// TestGroupExpires checks that nothing of a group stays without its creators: each member ends by its own time to live.
func TestGroupExpires(t *testing.T) {
	b := newBox(t)
	member := func(name string, ttl time.Duration) {
		t.Helper()
		if r := b.demesne("create", "--group", "shop", "--name", name, "--ttl", ttl.String()); r.code != 0 {
			t.Fatalf("%+v", r)
		}
	}
	member("web", 100*time.Millisecond)
	for ttl := time.Second; ; ttl *= 4 { // db's time has to be enough for a command, and is over before that on a slow machine
		member("db", ttl)
		r := b.demesne("exec", "db.shop", "-c", "nohup sleep 1000 > /dev/null 2>&1 &")
		if r.code == 0 {
			break
		}
		if ttl > patience {
			t.Fatalf("%+v", r)
		}
	}
	eventually(t, "the group to end", func() bool { return b.demesne("ls", "-q").stdout == "" })
	if r := b.demesne("rm", "--group", "shop"); r.code != 125 || !strings.Contains(r.stderr, `group "shop": it has no sandboxes`) {
		t.Errorf("after its time: %+v", r)
	}
	if r := b.demesne("create", "--group", "shop", "--name", "db", "--ttl", "100ms"); r.code != 0 {
		t.Errorf("the name is not free again: %+v", r)
	}
	eventually(t, "the new member to end", func() bool { return b.demesne("ls", "-q").stdout == "" })
}
