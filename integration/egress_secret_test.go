package integration

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// vault starts two hosts that record the credentials they receive and echo them: vault.test, also over plain
// HTTP, and other.test. The secret is in $TOKEN.
func (n *internet) vault() {
	n.Helper()
	cert := n.trusted("8.3.3.3 vault.test\n8.4.4.4 other.test\n")
	tell := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		how := ""
		if r.TLS == nil {
			how = ", in the clear"
		}
		n.saw(r.Host + " got " + r.Header.Get("Authorization") + " for " + r.URL.Path + how)
		w.Header().Set("X-Echo", r.Header.Get("Authorization"))
		io.WriteString(w, "thanks for "+r.Header.Get("Authorization")+"\n")
	})}
	n.Cleanup(func() { tell.Close() })
	secure := &tls.Config{Certificates: []tls.Certificate{cert}}
	go tell.Serve(tls.NewListener(n.listen("8.3.3.3:443"), secure))
	go tell.Serve(tls.NewListener(n.listen("8.4.4.4:443"), secure))
	go tell.Serve(n.listen("8.3.3.3:80"))
	n.extra = append(n.extra, "TOKEN="+canary)
}

// TestEgressSecret checks that a sandbox can use a credential without ever seeing its value. Only the
// credential's own host receives it, and only over TLS. The echo of that host does not bring it into the sandbox
// (N26, N27).
func TestEgressSecret(t *testing.T) {
	onLevels(t, func(n *internet) {
		program(n, "curl")
		n.vault()
		r := n.inside(`echo "$TOKEN" > /out/placeholder
curl -sSi -H "Authorization: Bearer $TOKEN" https://vault.test/
curl -sS -H "Authorization: Bearer $TOKEN" https://other.test/
curl -sS -H "Authorization: Bearer $TOKEN" http://vault.test/
cat /proc/*/environ 2> /dev/null | tr '\0' '\n' | grep -c `+canary,
			"--out", n.dir+"/secret", "--allow-domain", "vault.test", "--allow-domain", "other.test",
			"--secret", "TOKEN", "--secret-for", "TOKEN=vault.test:Authorization")
		if !n.heard("vault.test got Bearer " + canary) {
			t.Errorf("the host did not get it: %q, %+v", n.seen, r)
		}
		if n.heard("other.test got Bearer "+canary) || n.heard("in the clear") {
			t.Errorf("another one got it, or in the clear: %q", n.seen)
		}
		if placeholder := lines(t, n.dir+"/secret/placeholder")[0]; placeholder == "" || strings.Contains(placeholder+r.stdout+r.stderr, canary) || !strings.HasSuffix(r.stdout, "\n0\n") {
			t.Errorf("inside: %q, %+v", placeholder, r)
		}
		if n := strings.Count(r.stdout, "Bearer "+strings.Repeat("*", len(canary))); n != 2 {
			t.Errorf("what the host sent back is blanked %d times: %s", n, r.stdout)
		}
		// No file stores the value, so a restarted sandbox needs it again.
		secret := []string{"--secret", "TOKEN", "--secret-for", "TOKEN=vault.test:Authorization"}
		kept := n.create(append(secret, "--allow-domain", "vault.test")...)
		n.must("stop", kept)
		n.must(append(append([]string{"exec"}, secret...), kept, "-c", `curl -sS -H "Authorization: Kept $TOKEN" https://vault.test/`)...)
		if !n.heard("vault.test got Kept " + canary) {
			t.Errorf("after it was started again the host did not get it: %q", n.seen)
		}
	})
}

// TestSecretCaptured checks that no record of a command that uses a secret contains its value. Records are
// results, jobs, tool results, traces, receipts and decisions, and the files of each. Where demesne captures the
// output and knows the value, it also redacts a value that came from an input.
func TestSecretCaptured(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "curl")
		n.vault()
		leak := n.file("leak", "leaked "+canary+"\n", 0o644)
		secret := []string{"--secret", "TOKEN", "--secret-for", "TOKEN=vault.test"}
		use := `curl -sSi -H "Authorization: Bearer $TOKEN" https://vault.test/$0; curl -sS "http://vault.test/?q=$TOKEN"; curl -sS -H "X: $TOKEN" http://vault.test/`
		flags := append([]string{"--in", leak, "--allow-domain", "vault.test"}, secret...)
		run := func(way string, args ...string) string {
			r := n.demesne(args...)
			if strings.Contains(r.stdout+r.stderr, canary) {
				n.Errorf("%s: %+v", way, r)
			}
			return r.stdout + r.stderr
		}
		captured := use + "; cat /in/leak"
		told := run("run --json", append(append([]string{"run", "--json"}, flags...), "-c", captured, "run-json")...)
		if strings.Count(told, strings.Repeat("*", len(canary))) < 3 {
			n.Errorf("run --json blanked too little: %s", told)
		}
		run("run --trace", append(append([]string{"run", "--trace"}, flags...), "-c", use, "run-trace")...)
		job := strings.TrimSpace(run("run --background", append(append([]string{"run", "--background"}, flags...), "-c", captured, "job")...))
		run("wait", "wait", job)
		run("logs", "logs", job)
		run("jobs --json", "jobs", "--json")

		id := n.create(append([]string{"--share", "mcp"}, flags...)...)
		run("exec", "exec", id, "-c", use, "exec")
		run("exec --json", append(append([]string{"exec", "--json"}, secret...), id, "-c", captured, "exec-json")...)
		job = strings.TrimSpace(run("exec --background", append(append([]string{"exec", "--background"}, secret...), id, "-c", captured, "exec-job")...))
		run("wait", "wait", job)
		run("logs", "logs", job)
		run("inspect", "inspect", id)
		run("ls --json", "ls", "--json")
		c := n.mcp()
		for _, r := range []answer{c.must("sandbox_exec", args{"sandbox_id": id, "command": use}), c.call("sandbox_ls", args{})} {
			if strings.Contains(fmt.Sprint(r.Text, r.Fields), canary) {
				n.Errorf("MCP: %+v", r)
			}
		}
		n.demesne("stop", id)
		for _, way := range []string{"run-json", "run-trace", "job", "exec", "exec-json", "exec-job"} {
			if !n.heard("vault.test got Bearer " + canary + " for /" + way) {
				n.Errorf("%s: the host did not get it: %q", way, n.seen)
			}
		}
		filepath.WalkDir(n.dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || path == leak {
				return nil
			}
			if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(canary)) {
				n.Errorf("%s has it: %.200q", path, text)
			}
			return nil
		})
	})
}
