package integration

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"demesne/client"
)

// TestServeSecret checks that a sandbox of E2B's API uses a stored secret by a network rule. Only the rule's host gets the
// value, over TLS. The sandbox never sees it, and no file contains it in plain.
func TestServeSecret(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "curl")
		n.vault()
		api := n.serveAPI()
		if r := n.finish(n.sdk(api, "clients/e2b/secret.mjs", canary)); r.code != 0 {
			t.Errorf("%+v\n%s\nheard: %q", r, api.said(), n.seen)
		}
		for _, path := range []string{"set", "own"} {
			if !n.heard("vault.test got Bearer " + canary + " for /" + path) {
				t.Errorf("%s: the host did not get it: %q", path, n.seen)
			}
		}
		for _, path := range []string{"again", "copy"} {
			if !n.heard("vault.test got Bearer " + canary + "x for /" + path) {
				t.Errorf("%s: the host did not get it: %q", path, n.seen)
			}
		}
		if !n.heard("other.test got  for /other") || !n.heard("vault.test got  for /clear, in the clear") {
			t.Errorf("others: %q", n.seen)
		}
		api.stop(syscall.SIGTERM)
		if strings.Contains(api.said(), canary) {
			t.Error("the server's messages have the value")
		}
		n.nowhere(n.home, canary)
	})
}

// TestServeSecrets uses a stored secret over /v1. The value goes only to the secret's host, for the sandbox and its forks.
// Copies of a snapshot, other sandboxes and other namespaces do not get it. A value that reached the sandbox by another way is in no output that its caller sees,
// however it is encoded or split, and in no event, log or file of the server.
func TestServeSecrets(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "curl")
		n.vault()
		n.must("secret", "add", "--host", "vault.test", "--header", "Authorization", "--from", "env:TOKEN", "KEY")
		api, alice, _ := n.tenants("--egress", "open")
		c, ctx := api.client(t, api.key), brief(t)
		network := client.Network{Allow: []string{"vault.test", "other.test"}}
		set := client.Settings{Secrets: []string{"KEY"}, Network: &network}
		use := func(path string) string {
			return `curl -sS -H "Authorization: Bearer $KEY" https://vault.test/` + path + `; curl -sS -H "Authorization: Bearer $KEY" https://other.test/` + path + `; echo "${KEY:-no key}"`
		}
		var told []string // all that callers see
		exec := func(c *client.Client, sandbox, command string) *client.Result {
			t.Helper()
			r, err := c.Sandboxes().Exec(ctx, sandbox, client.Command{Command: command})
			if err != nil {
				t.Fatal(err)
			}
			told = append(told, fmt.Sprintf("%+v", r))
			return r
		}
		once, err := c.Run(ctx, client.RunRequest{Command: client.Command{Command: use("run")}, Secrets: set.Secrets, Network: &network})
		if err != nil {
			t.Fatal(err)
		}
		sb, err := c.Sandboxes().Create(ctx, client.CreateRequest{Name: "web", Settings: set})
		if err != nil {
			t.Fatal(err)
		}
		told = append(told, fmt.Sprintf("%+v", once))
		if r := exec(c, "web", use("exec")+`; cat /proc/*/environ | tr '\0' '\n'`); !strings.Contains(r.Stdout.Text, "KEY=") {
			t.Errorf("the placeholder is not in the environment: %+v", r)
		}
		for _, path := range []string{"run", "exec"} {
			if !n.heard("vault.test got Bearer " + canary + " for /" + path) {
				t.Errorf("%s: the host did not get it: %q", path, n.seen)
			}
		}

		// Copies, and others.
		fork := got[*client.Sandbox](t)(c.Sandboxes().Fork(ctx, "web", "fork"))
		shot := got[*client.Sandbox](t)(c.Sandboxes().Snapshot(ctx, "web", "shot"))
		copied := got[*client.Sandbox](t)(c.Sandboxes().Fork(ctx, "shot", "copied"))
		exec(c, fork.ID, use("fork"))
		if !n.heard("vault.test got Bearer " + canary + " for /fork") {
			t.Errorf("a fork: the host did not get it: %q", n.seen)
		}
		if r := exec(c, copied.ID, use("copied")); len(r.Missing) != 1 || r.Missing[0] != "KEY" {
			t.Errorf("a copy of a snapshot does not say what it lacks: %+v", r)
		}
		others := api.client(t, alice.token)
		if _, err := others.Sandboxes().Create(ctx, client.CreateRequest{Settings: set}); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("another namespace: %v", err)
		}
		plain := got[*client.Sandbox](t)(c.Sandboxes().Create(ctx, client.CreateRequest{Settings: client.Settings{Network: &network}}))
		exec(c, plain.ID, use("plain"))

		// A value that came in a file.
		if _, err := c.Files("web").Write(ctx, "leak", []byte(canary)); err != nil {
			t.Fatal(err)
		}
		const leak = `cat leak; echo; base64 -w0 leak; echo; printf x | cat - leak | base64 -w0; echo; head -c 5 leak; sleep 0.2; tail -c +6 leak; echo`
		show := leak + `; python3 -c 'import urllib.parse; print(urllib.parse.quote(open("leak").read(), safe=""))'; cat leak >&2`
		if r := exec(c, "web", show); strings.Count(r.Stdout.Text, "***") < 4 || !strings.Contains(r.Stderr.Text, "***") {
			t.Errorf("blanked too little: %+v", r)
		}
		var out, errs strings.Builder
		if _, err := c.Sandboxes().ExecStream(ctx, "web", client.Command{Command: show}, client.Streams{Stdout: &out, Stderr: &errs}); err != nil || strings.Count(out.String(), "***") < 4 {
			t.Errorf("a stream: %v %s %s", err, out.String(), errs.String())
		}
		term := got[*client.Terminal](t)(c.Sandboxes().Terminal(ctx, "web", client.TerminalOptions{Command: show}))
		text, err := io.ReadAll(term)
		if err != nil || strings.Count(string(text), "***") < 5 {
			t.Errorf("a terminal: %v %s", err, text)
		}
		term.Close()
		told = append(told, out.String(), errs.String(), string(text))
		exec(c, "web", ": "+canary)
		for d, err := range c.Egress().Log(ctx, "web", false) {
			told = append(told, fmt.Sprint(d, err))
		}
		told = append(told, fmt.Sprint(c.Audit().List(ctx, client.EventFilter{Last: 1000})), fmt.Sprint(c.Sandboxes().Receipt(ctx, "web")), fmt.Sprint(c.Sandboxes().Get(ctx, "web")))
		for e, err := range c.Events(ctx, client.EventFilter{Last: 200}) {
			if told = append(told, fmt.Sprint(e, err)); strings.Contains(fmt.Sprint(e.Detail), ": ***") || err != nil {
				break // the last command
			}
		}

		if r := n.finish(n.sdk(api, "clients/e2b/shown.mjs", canary)); r.code != 0 {
			t.Errorf("%+v\n%s", r, api.said())
		}
		for _, line := range n.seen {
			if strings.Contains(line, canary) && !regexp.MustCompile(` for /(run|exec|fork)$`).MatchString(line) {
				t.Errorf("another one got it: %s", line)
			}
		}
		for _, sandbox := range []string{sb.ID, fork.ID, copied.ID, plain.ID, shot.ID} {
			if err := c.Sandboxes().Remove(ctx, sandbox); err != nil {
				t.Error(err)
			}
		}
		api.stop(syscall.SIGTERM)
		for _, text := range append(told, api.said()) {
			for _, form := range []string{canary, base64.RawStdEncoding.EncodeToString([]byte(canary)), url.QueryEscape(canary)} {
				if strings.Contains(text, form[:len(form)-1]) {
					t.Errorf("a value was told: %s", text)
				}
			}
		}
		n.nowhere(n.home, canary)
	})
}
