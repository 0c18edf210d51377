package integration

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestEgressLive checks that the policy of a live sandbox can be changed, and only from outside.
func TestEgressLive(t *testing.T) {
	onInternet(t, func(n *internet) {
		if r := n.demesne("create", "--name", "live", "--allow-domain", "good.test"); r.code != 0 {
			n.Fatalf("create: %+v", r)
		}
		defer n.demesne("rm", "live")
		ask := func() string { return n.demesne("exec", "live", "--", "curl", "-sS", "http://dark.test/").stdout }
		if got := ask(); !strings.Contains(got, "no rule") {
			n.Errorf("before: %q", got)
		}
		if r := n.demesne("egress", "allow", "live", "dark.test"); r.code != 0 {
			n.Fatalf("allow: %+v", r)
		}
		if got := ask(); got != "hello from dark.test\n" {
			n.Errorf("allowed: %q", got)
		}
		if r := n.demesne("egress", "deny", "live", "dark.test"); r.code != 0 {
			n.Fatalf("deny: %+v", r)
		}
		if got := ask(); !strings.Contains(got, `denied by rule "dark.test"`) {
			n.Errorf("denied: %q", got)
		}
		if r := n.demesne("egress", "allow", "live", "*.com"); r.code == 0 || !strings.Contains(r.stderr, "*.com") {
			n.Errorf("a malformed rule: %+v", r)
		}
		log := n.demesne("egress", "log", "live").stdout
		for _, want := range []string{`rule "dark.test" was added to the allowed`, `rule "dark.test" was added to the denied`} {
			if strings.Count(log, want) != 1 {
				n.Errorf("the log has no %q:\n%s", want, log)
			}
		}
		n.demesne("create", "--name", "shut")
		defer n.demesne("rm", "shut")
		if r := n.demesne("egress", "allow", "shut", "good.test"); r.code == 0 || !strings.Contains(r.stderr, "has no network") {
			n.Errorf("without a gateway: %+v", r)
		}
	})
}

// TestEgressKilled checks that a killed runner leaves no gateway, connection or process. The box checks this at
// the end of the test.
func TestEgressKilled(t *testing.T) {
	onInternet(t, func(n *internet) {
		for range 3 {
			cmd := n.command("demesne", "run", "--allow-domain", "db.test:5432", "--publish", "127.0.0.1:8081:1", "--", "python3", "-c",
				`import socket; s = socket.create_connection(("db.test", 5432)); s.recv(100); print("up", flush=True); s.recv(100)`)
			n.start(cmd, "up")
			if !connected(n) {
				n.Error("no connection to be broken")
			}
			for _, pid := range runners(true) {
				syscall.Kill(pid, syscall.SIGKILL)
			}
			cmd.Wait()
			eventually(n, "no connection", func() bool { return !connected(n) })
		}
	})
}

// connected reports whether there is an established connection to port 5432.
func connected(n *internet) bool {
	n.Helper()
	for _, line := range lines(n, "/proc/self/net/tcp") {
		if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[2], ":1538") && f[3] == "01" {
			return true
		}
	}
	return false
}

// TestEgressLog checks that the log contains every decision, as JSON.
func TestEgressLog(t *testing.T) {
	onInternet(t, func(n *internet) {
		r := n.demesne("run", "--json", "--allow-domain", "good.test", "--", "sh", "-c", "curl -sS http://good.test/x; curl -sS http://dark.test/y; true")
		var p struct {
			Sandbox string
			Log     string `json:"egress_log"`
		}
		if err := json.Unmarshal([]byte(r.stdout), &p); err != nil || p.Log == "" {
			n.Fatalf("%v: %+v", err, r)
		}
		var verdicts []string
		for _, line := range lines(n, p.Log) {
			var rec struct {
				Time                                                        time.Time
				Sandbox, Via, Host, Address, Verdict, Rule, Reason, Request string
				Port, Version                                               int
				In, Out, MS                                                 *int64
			}
			if line == "" {
				continue
			}
			if err := json.Unmarshal([]byte(line), &rec); err != nil || rec.Time.IsZero() {
				n.Fatalf("%q: %v", line, err)
			}
			if rec.Version != 1 || rec.Sandbox != p.Sandbox || rec.Reason == "" || rec.In == nil || rec.Out == nil || rec.MS == nil {
				n.Errorf("a line lacks something: %s", line)
			}
			if rec.Via == "http" && (rec.Port != 80 || rec.Verdict == "allowed" && (rec.Address != "8.1.1.1:80" || *rec.In < 20)) {
				n.Errorf("where it went, and how much: %s", line)
			}
			if rec.Via == "http" {
				verdicts = append(verdicts, strings.Join([]string{rec.Host, rec.Request, rec.Verdict, rec.Rule}, " "))
			}
		}
		slices.Sort(verdicts) // an allowed one has its line when its connection has ended, which may be after the next one's
		if got := strings.Join(verdicts, "\n"); got != "dark.test GET /y denied \ngood.test GET /x allowed good.test" {
			n.Errorf("log:\n%s", got)
		}
	})
}

// TestEscapeN35LogFlood checks that the log aggregates repeated refusals into few lines, and still records later
// allowed requests (N35).
func TestEscapeN35LogFlood(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "python3")
		result := n.dir + "/run.json"
		r := n.demesne("run", "--json="+result, "--allow-domain", "good.test", "--", "sh", "-c", `python3 - <<'E'
import http.client
for i in range(3000):
    c = http.client.HTTPConnection("198.18.0.1", 3128)
    c.request("GET", "http://dark.test/")
    assert c.getresponse().status == 403
    c.close()
E
curl -sS http://good.test/`)
		if r.code != 0 {
			n.Fatalf("%+v", r)
		}
		var p struct {
			Log    string `json:"egress_log"`
			Stdout string
			Denied []struct{ Times int }
		}
		if err := json.Unmarshal([]byte(readFile(n, result)), &p); err != nil || len(p.Denied) != 1 || p.Denied[0].Times != 3000 {
			n.Fatalf("%+v, %v", p, err)
		}
		text := readFile(n, p.Log)
		if lines := strings.Count(text, "\n"); lines > 20 || !strings.Contains(text, `"host":"good.test","port":80,"request":"GET /"`) {
			n.Errorf("%d lines: %s", lines, text)
		}
		if got := n.demesne("egress", "suggest", p.Log).stdout; !strings.Contains(got, "decisions in the log: 3001") || strings.Contains(got, "dark") {
			n.Errorf("suggest: %s", got)
		}
		if got := n.demesne("egress", "log", p.Log).stdout; !strings.Contains(got, "1024 times since") {
			n.Errorf("log: %s", got)
		}
	})
}

// TestEgressLogPruned checks that a log without new entries is removed after a week, but not while its sandbox
// lives.
func TestEgressLogPruned(t *testing.T) {
	onInternet(t, func(n *internet) {
		n.create("--name", "quiet", "--allow-domain", "good.test")
		if r := n.demesne("exec", "quiet", "--", "curl", "-sS", "http://good.test/"); r.code != 0 {
			n.Errorf("exec: %+v", r)
		}
		log := n.out + "/.egress/" + names(n.out + "/.egress")[0]
		old := time.Now().Add(-8 * 24 * time.Hour)
		for _, c := range []struct {
			args []string
			kept bool
		}{{[]string{"ls"}, true}, {[]string{"rm", "quiet"}, false}} {
			if r := n.demesne(c.args...); r.code != 0 {
				n.Errorf("%q: %+v", c.args, r)
			}
			if err := os.Chtimes(log, old, old); err != nil {
				n.Fatal(err)
			}
			if r := n.demesne("gc"); r.code != 0 || exists(log) != c.kept {
				n.Errorf("gc after %q: log is there: %t; %+v", c.args, exists(log), r)
			}
		}
	})
}

// TestEgressAsk checks that the user at the terminal decides about a name, once, and that an unanswered question
// is a denial.
func TestEgressAsk(t *testing.T) {
	onInternet(t, func(n *internet) {
		term := n.terminal("run", "--ask", "--", "sh", "-c",
			"curl -sS http://good.test/; curl -sS http://good.test/; curl -sS --noproxy '*' -m 20 http://dark.test/; curl -sS http://dark.test/")
		term.expect("allow access to good.test:80? [y/N]")
		if n.heard("good.test") {
			n.Error("good.test was asked before the question was answered")
		}
		term.typ("y\n")
		term.expect("hello from good.test")
		term.expect("allow access to dark.test:80? [y/N]")
		term.typ("n\n")
		term.expect(`denied by rule "dark.test:80"`)
		term.wait()
		if k := strings.Count(term.screen(), "allow access to"); k != 2 || strings.Count(term.screen(), "hello from good.test") != 2 || n.heard("dark.test") {
			n.Errorf("%d questions, seen %q:\n%s", k, n.seen, term.screen())
		}
	})
}

// TestEscapeAskDisguised checks that a command cannot overwrite a question, or fake one. Its output is held back
// until the question is answered.
func TestEscapeAskDisguised(t *testing.T) {
	onInternet(t, func(n *internet) {
		dir, out := n.mkdir("told"), n.mkdir("out")
		term := n.terminal("run", "--ask", "--in", dir, "--out", out, "--", "sh", "-c", `printf '\033]0;'
			{ until test -e /in/told/asked; do sleep 0.1; done; printf '\r\033[2Kdemesne: run: allow access to good.test:80? [y/N] '; touch /out/wrote; } &
			curl -sS http://dark.test/; wait`)
		term.expect("\x18\x1b[?2026l\x0f\x1b[!p\x1b[0m\r\ndemesne: run: allow access to dark.test:80? [y/N] ")
		if err := os.WriteFile(dir+"/asked", nil, 0o644); err != nil {
			n.Fatal(err)
		}
		eventually(n, "the command has written", func() bool { _, err := os.Stat(out + "/wrote"); return err == nil })
		term.typ("n\n")
		term.expect(`denied by rule "dark.test:80"`)
		term.wait()
		if screen := term.screen(); !strings.Contains(screen, "dark.test:80? [y/N] n") || !strings.Contains(screen, "good.test:80? [y/N]") {
			n.Errorf("%q", screen)
		}
	})
}

// TestEgressAskUnanswered checks that an unanswered question denies the waiting connection but adds no rule: the
// next connection asks again. An answer typed too late has no effect.
func TestEgressAskUnanswered(t *testing.T) {
	onInternet(t, func(n *internet) {
		dir := n.mkdir("typed")
		term := n.terminal("run", "--ask", "--ask-timeout", "1s", "--in", dir, "--", "sh", "-c",
			"curl -sS http://good.test/; until test -e /in/typed/late; do sleep 0.1; done; curl -sS http://dark.test/; curl -sS http://good.test/")
		term.expect("allow access to good.test:80? [y/N]")
		term.expect("no answer in 1s: denied for now")
		term.expect("blocked by demesne: good.test:80: no rule")
		term.typ("y\n")
		if err := os.WriteFile(dir+"/late", nil, 0o644); err != nil {
			n.Fatal(err)
		}
		term.wait()
		screen := term.screen()
		if strings.Count(screen, "allow access to good.test") != 2 || strings.Count(screen, "allow access to dark.test") != 1 || strings.Count(screen, ": no rule") < 3 || n.heard("dark.test") || n.heard("good.test") {
			n.Errorf("seen %q:\n%s", n.seen, screen)
		}
	})
}

// TestEgressMany runs many sandboxes at once, each with its own egress.
func TestEgressMany(t *testing.T) {
	onInternet(t, func(n *internet) {
		const many = 40
		var cmds []*exec.Cmd
		var outs [many]bytes.Buffer
		for i := range many {
			cmd := n.command("demesne", "run", "--allow-domain", "good.test", "--", "curl", "-sS", "--noproxy", "*", "http://good.test/")
			cmd.Stdout, cmd.Stderr = &outs[i], &outs[i]
			if err := cmd.Start(); err != nil {
				n.Fatal(err)
			}
			cmds = append(cmds, cmd)
		}
		for i, cmd := range cmds {
			if err := cmd.Wait(); err != nil || outs[i].String() != "hello from good.test\n" {
				n.Errorf("%d: %v: %s", i, err, outs[i].String())
			}
		}
	})
}
