package integration

import (
	"os"
	"strings"
	"testing"
)

// TestEgressSecretLive checks that a call with a secret that the live sandbox lacks is refused, not silently
// ignored. A restart without secrets reports the missing ones once, and a restart with secrets supplies them.
func TestEgressSecretLive(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "curl")
		n.vault()
		n.extra = append(n.extra, "OTHER=other-value")
		secret := []string{"--secret", "TOKEN", "--secret-for", "TOKEN=vault.test:Authorization"}
		use := func(how string) string {
			return `curl -sS -H "Authorization: ` + how + ` $TOKEN" https://vault.test/`
		}
		exec := func(flags []string, rest ...string) result {
			n.Helper()
			return n.demesne(append(append([]string{"exec"}, flags...), rest...)...)
		}
		refused := func(what, why string, r result) {
			n.Helper()
			if r.code != 125 || !strings.Contains(r.stderr, why) || strings.Contains(r.stderr, canary) || strings.Contains(r.stderr, "other-value") {
				n.Errorf("%s: %+v, want %q", what, r, why)
			}
		}
		bare := n.create("--share", "mcp", "--allow-domain", "vault.test")
		refused("a secret for a live sandbox", "secret TOKEN: started without it", exec(secret, bare, "-c", "echo ran"))
		refused("the same in turn", "secret TOKEN: started without it", exec(append([]string{"--queue"}, secret...), bare, "-c", "echo ran"))
		refused("without a network", "secret TOKEN: started without it", exec(secret, n.create(), "-c", "echo ran"))
		os.RemoveAll(n.home + "/.demesne/turns") // directory of the line of waiting commands
		// Follow the hint of the refusal.
		n.must("stop", bare)
		if r := exec(secret, bare, "-c", use("Later")); r.code != 0 || !n.heard("vault.test got Later "+canary) {
			n.Errorf("started again with it: %+v, %q", r, n.seen)
		}
		if r := exec(secret, bare, "-c", "echo again"); r.stdout != "again\n" || r.stderr != "" {
			n.Errorf("the same secret a second time: %+v", r)
		}
		refused("another value", "secret TOKEN: started with another value, host or header", exec([]string{"--secret", "TOKEN=env:OTHER", "--secret-for", "TOKEN=vault.test:Authorization"}, bare, "-c", "true"))
		refused("another host", "secret TOKEN: started with another value, host or header", exec([]string{"--secret", "TOKEN", "--secret-for", "TOKEN=other.test"}, bare, "-c", "true"))
		refused("one more", "secret OTHER: started without it", exec(append([]string{"--secret", "OTHER", "--secret-for", "OTHER=vault.test"}, secret...), bare, "-c", "true"))

		kept := n.create(append([]string{"--share", "mcp", "--name", "kept", "--allow-domain", "vault.test"}, secret...)...)
		n.must("fork", "--name", "twig", kept)
		n.must("stop", kept)
		const lacks = "was started without its secrets: TOKEN"
		if r := exec([]string{"--json"}, kept, "-c", `echo "[$TOKEN]"`); !strings.Contains(r.stderr, lacks) || !strings.Contains(r.stdout, `"missing_secrets": [`) || !strings.Contains(r.stdout, `"[]\n"`) {
			n.Errorf("a restart without its secret: %+v", r)
		}
		if r := exec(nil, kept, "-c", "true"); r.stderr != "" {
			n.Errorf("it is said twice: %+v", r)
		}
		refused("too late", "secret TOKEN: started without it", exec(secret, kept, "-c", "true"))
		n.must("stop", kept)
		n.file("up", "x", 0o644)
		if r := n.demesne("cp", n.dir+"/up", "kept:/tmp/"); !strings.Contains(r.stderr, lacks) {
			n.Errorf("a restart by cp: %+v", r)
		}
		c := n.mcp()
		if r := c.must("sandbox_exec", args{"sandbox_id": kept, "command": "true"}); r.field("missing_secrets") != "[TOKEN]" || r.field("restarted") != "true" {
			n.Errorf("MCP, after cp: %v", r.Fields)
		}
		n.must("stop", kept)
		if r := exec(secret, kept, "-c", use("Back")); strings.Contains(r.stderr, lacks) || !n.heard("vault.test got Back "+canary) {
			n.Errorf("started again with its secret: %+v, %q", r, n.seen)
		}
		if r := exec(nil, "twig", "-c", "true"); !strings.Contains(r.stderr, lacks) || strings.Contains(r.stderr, "was stopped; it was started again") {
			n.Errorf("a fork: %+v", r)
		}

		key := []string{"run", "--key", "k", "--allow-domain", "vault.test"}
		n.must(append(key, "-c", "echo kept > /root/f")...)
		withSecret := append(append([]string{}, key...), secret...)
		refused("run --key", "secret TOKEN: started without it", n.demesne(append(withSecret, "-c", "true")...))
		n.must("stop", strings.Fields(n.must("ls", "-q"))[4])
		if r := n.demesne(append(withSecret, "-c", "cat /root/f; "+use("Keyed"))...); !strings.HasPrefix(r.stdout, "kept\n") || !n.heard("vault.test got Keyed "+canary) {
			n.Errorf("run --key after a stop: %+v, %q", r, n.seen)
		}
		n.must(append([]string{"rm", "twig"}, strings.Fields(n.must("ls", "-q"))[4])...)
	})
}
