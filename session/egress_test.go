package session

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"demesne/runner"
)

// helper installs a shell script in place of demesne-proxy.
func helper(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("DEMESNE_LIBEXEC", dir)
	if err := os.WriteFile(dir+"/"+EgressProgram, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
}

func noEnv(string) string { return "" }

// find returns the settings for e of a gateway without an environment, and with the secrets.
func find(ctx context.Context, e Egress, secrets ...runner.Secret) (*runner.Egress, []string, error) {
	g := egressResolver{getenv: noEnv, source: func() ([]runner.Secret, error) { return secrets, nil }}
	to, r, err := g.settings(ctx, e)
	return to, r.Notes, err
}

// TestFindAlone checks that rules with only names start no helper, and that no options mean no network.
func TestFindAlone(t *testing.T) {
	t.Setenv("DEMESNE_LIBEXEC", t.TempDir())
	for _, w := range []Egress{{}, {Mode: runner.NoEgress}, {Deny: []string{"a.test"}}} {
		if e, notes, err := find(context.Background(), w); e != nil || notes != nil || err != nil {
			t.Errorf("%+v: %+v, %q, %v", w, e, notes, err)
		}
	}
	e, _, err := find(context.Background(), Egress{Mode: runner.NoEgress, Allow: []string{"a.test"}, Deny: []string{"b.a.test"}})
	if err != nil || !slices.Equal(e.Allow, []string{"a.test"}) || !slices.Equal(e.Deny, []string{"b.a.test"}) || e.Mode != "" {
		t.Errorf("%+v, %v", e, err)
	}
	if e, _, err := find(context.Background(), Egress{Learn: true}); e == nil || err != nil {
		t.Errorf("a gateway: %+v, %v", e, err)
	}
	if _, _, err := find(context.Background(), Egress{Mode: "open"}); err == nil {
		t.Error("a mode without the helper was taken")
	}
}

func TestFindAsks(t *testing.T) {
	helper(t, `[ "$*" = "rules --mode=open --file=f.toml" ] || exit 9
echo '{"mode":"open","allow":["f.test"],"deny":["g.test"],"notes":["a note"]}'`)
	e, notes, err := find(context.Background(), Egress{Mode: "open", File: "f.toml", Allow: []string{"a.test"}})
	if err != nil || e.Mode != "open" || !slices.Equal(e.Allow, []string{"f.test", "a.test"}) || !slices.Equal(e.Deny, []string{"g.test"}) || len(notes) != 1 {
		t.Errorf("%+v, %q, %v", e, notes, err)
	}
	helper(t, `echo '{"mode":"none"}'`)
	if e, _, err := find(context.Background(), Egress{File: "f.toml"}); e != nil || err != nil {
		t.Errorf("a file that allows nothing: %+v, %v", e, err)
	}
}

func TestFindFails(t *testing.T) {
	helper(t, `echo '{"wrong":["f:1: one","f:2: two","f:3: three"]}'`)
	var wrong *policyError
	_, _, err := find(context.Background(), Egress{File: "f"})
	if !errors.As(err, &wrong) || len(wrong.Lines) != 3 || err.Error() != "f:1: one (and 2 more)" {
		t.Errorf("%v", err)
	}
	helper(t, `echo last words >&2; exit 3`)
	if _, _, err := find(context.Background(), Egress{File: "f"}); err == nil || !strings.HasSuffix(err.Error(), "last words") {
		t.Errorf("%v", err)
	}
	helper(t, `echo nonsense`)
	if _, _, err := find(context.Background(), Egress{File: "f"}); err == nil {
		t.Error("nonsense was taken")
	}
	helper(t, `exec sleep 60`)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := find(ctx, Egress{File: "f"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// TestUpstream checks that the host's proxy variables are passed to the runner, NO_PROXY included.
func TestUpstream(t *testing.T) {
	env := map[string]string{"https_proxy": "http://u:p@proxy.test:3128", "NO_PROXY": "corp.test", "HTTP_PROXY": "", "ALL_PROXY": "x", "HOME": "/"}
	e, _, err := (&egressResolver{getenv: func(k string) string { return env[k] }}).settings(context.Background(), Egress{Allow: []string{"a.test"}})
	if err != nil || len(e.Upstream) != 2 || e.Upstream["https_proxy"] != env["https_proxy"] || e.Upstream["NO_PROXY"] != "corp.test" {
		t.Errorf("%+v, %v", e, err)
	}
	if upstream(noEnv) != nil {
		t.Error("a proxy out of nothing")
	}
}
