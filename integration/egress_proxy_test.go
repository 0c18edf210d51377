package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestProxyKilled kills the proxy of a sandbox's network repeatedly. A new proxy takes its place with the current
// policy. Open connections end, and none hangs.
func TestProxyKilled(t *testing.T) {
	onInternet(t, func(n *internet) {
		if r := n.demesne("create", "--name", "live", "--allow-domain", "good.test", "--allow-domain", "db.test:5432"); r.code != 0 {
			n.Fatalf("create: %+v", r)
		}
		defer n.demesne("rm", "live")
		if r := n.demesne("egress", "allow", "live", "dark.test:80"); r.code != 0 {
			n.Fatalf("allow: %+v", r)
		}
		for round := range max(8, rounds()/4) {
			cmd := n.command("demesne", "exec", "live", "--", "python3", "-c",
				`import socket; s = socket.create_connection(("db.test", 5432)); s.recv(100); print("up", flush=True); s.recv(100)`)
			n.start(cmd, "up")
			old := named("demesne-proxy")
			if len(old) != 1 {
				n.Fatalf("round %d: proxies %v", round, old)
			}
			syscall.Kill(old[0], syscall.SIGKILL)
			ended(t, cmd)
			for _, args := range [][]string{{}, {"--noproxy", "*"}} {
				fetch := append([]string{"exec", "live", "--", "curl", "-sS", "-m", "20", "http://good.test/", "http://dark.test/"}, args...)
				if r := n.demesne(fetch...); r.stdout != "hello from good.test\nhello from dark.test\n" {
					n.Fatalf("round %d, curl %v: %+v", round, args, r)
				}
			}
		}
		if r := n.demesne("exec", "live", "--", "curl", "-sS", "-m", "20", "http://own.test/"); !strings.Contains(r.stdout, "no rule") || !strings.Contains(r.stderr, "blocked: own.test") {
			n.Errorf("what no rule allows: %+v", r)
		}
	})
}

// TestProxyKilledRemembers checks that the denials of a killed proxy appear in the result of the command that
// they concern. The next proxy continues with the remainder of each rule's budget.
func TestProxyKilledRemembers(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "python3")
		policy := n.file("policy.toml", `
[[rule]]
allow = "good.test:80"
max-requests = 3

[[rule]]
allow = "db.test:5432"
max-connections = 1
`, 0o644)
		id := n.create("--egress-file", policy)
		cmd := n.command("demesne", "exec", id, "--", "sh", "-c", `curl -sS http://good.test/1 http://good.test/2 http://evil.test/ > /dev/null
python3 -c 'import socket; socket.create_connection(("db.test", 5432)).recv(1)'
echo up; until test -e /workspace/go; do sleep 0.05; done`)
		n.start(cmd, "up")
		for _, pid := range named("demesne-proxy") {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		r := n.demesne("exec", id, "--", "sh", "-c", `curl -sS http://good.test/3 http://good.test/4
python3 -c 'import socket; socket.create_connection(("db.test", 5432)).recv(1)' 2>/dev/null || echo refused; touch /workspace/go`)
		want := "hello from good.test\nblocked by demesne: good.test:80: rule \"good.test:80\": its budget of 3 requests is used up\nrefused\n"
		if r.stdout != want {
			n.Errorf("after the kill: %+v\nwant %q", r, want)
		}
		ended(t, cmd)
		if errs := fmt.Sprint(cmd.Stderr); !strings.Contains(errs, "blocked: evil.test") {
			n.Errorf("denied before the kill: %s", errs)
		}
	})
}

// TestProxyKilledEarly checks that a runner whose proxy is killed while it creates sandboxes still creates them,
// or says why not.
func TestProxyKilledEarly(t *testing.T) {
	onInternet(t, func(n *internet) {
		for round := range 20 {
			// The command ends when its input ends, and so not before the test has seen its proxy.
			cmd := n.command("demesne", "run", "-i", "--allow-domain", "good.test", "--", "sh", "-c", "curl -sS -m 20 http://good.test/; cat")
			in, err := cmd.StdinPipe()
			if err != nil {
				n.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				n.Fatal(err)
			}
			eventually(t, "a proxy", func() bool { return len(named("demesne-proxy")) > 0 })
			time.Sleep(time.Duration(round) * time.Millisecond) // another moment in each round
			for _, pid := range named("demesne-proxy") {
				syscall.Kill(pid, syscall.SIGKILL)
			}
			in.Close()
			ended(t, cmd)
		}
		if r := n.inside("curl -sS http://good.test/", "--allow-domain", "good.test"); r.stdout != "hello from good.test\n" {
			n.Errorf("after all that: %+v", r)
		}
	})
}

// TestProxyConfined checks that the proxy process, which parses data from the network, has no capabilities and
// can gain none. One proxy serves all sandboxes, and ends with the last of them.
func TestProxyConfined(t *testing.T) {
	onInternet(t, func(n *internet) {
		for _, name := range []string{"one", "two"} {
			if r := n.demesne("create", "--name", name, "--allow-domain", "good.test"); r.code != 0 {
				n.Fatalf("create: %+v", r)
			}
		}
		pids := named("demesne-proxy")
		if len(pids) != 1 {
			n.Fatalf("proxies: %v", pids)
		}
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pids[0]))
		if err != nil || len(tasks) == 0 {
			n.Fatal(tasks, err)
		}
		for _, task := range tasks {
			status, err := os.ReadFile(task)
			if err != nil {
				n.Fatal(err)
			}
			for _, want := range []string{"CapInh:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
				if !strings.Contains(string(status), want) {
					n.Errorf("%s has not %q:\n%s", task, want, status)
				}
			}
		}
		n.demesne("rm", "one", "two")
		eventually(t, "no proxy", func() bool { return len(named("demesne-proxy")) == 0 })
	})
}

// TestProxyMissing checks that without the demesne-proxy program there is no network, and that everything else
// works.
func TestProxyMissing(t *testing.T) {
	b := newBox(t)
	libexec := b.dir + "/libexec"
	if err := os.Mkdir(libexec, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"demesne-runner", "demesne-init"} {
		if err := os.Link(filepath.Join(bin, p), filepath.Join(libexec, p)); err != nil {
			program, err := os.ReadFile(filepath.Join(bin, p))
			if err != nil {
				t.Fatal(err)
			}
			b.file("libexec/"+p, string(program), 0o755)
		}
	}
	b.extra = append(b.extra, "DEMESNE_LIBEXEC="+libexec)
	if r := b.demesne("run", "--allow-domain", "good.test", "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "start demesne-proxy: it is not installed beside demesne-runner") {
		t.Errorf("with a network: %+v", r)
	}
	if r := b.demesne("run", "--", "true"); r.code != 0 {
		t.Errorf("without: %+v", r)
	}
}
