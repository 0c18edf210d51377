package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"demesne/runner"
	"demesne/runner/network"
	"demesne/runner/network/proxyclient"
)

func TestCertificates(t *testing.T) {
	const cert = "-----BEGIN CERTIFICATE-----\n"
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.crt": cert + "a", "sub/b.pem": cert + "b", "c.cer": cert + "c",
		"key.pem": "-----BEGIN PRIVATE KEY-----\nk", "d.txt": cert + "d", "e.crt": cert + strings.Repeat("e", maxAnchors),
	} {
		path := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	os.Symlink("/etc/passwd", filepath.Join(dir, "f.crt"))
	got := string(certificates([]string{filepath.Join(dir, "none"), dir}))
	if want := cert + "a\n" + cert + "c\n" + cert + "b\n"; got != want {
		t.Errorf("got %.200q, want %q", got, want)
	}
}

func TestTrust(t *testing.T) {
	s := &sandbox{egress: &runner.Egress{}}
	if err := s.trust(nil); err != nil || s.trusts != nil {
		t.Errorf("a sandbox without a network is to trust %v, %v", s.trusts, err)
	}
	// Without secrets the proxy has no certificate, so trust does not wait for its answer.
	if err := s.trust(network.NewEgress(*s.egress)); err != nil || len(s.trusts.Extra) != 0 {
		t.Errorf("without secrets: %v, %v", s.trusts, err)
	}
	s.egress.Secrets = []runner.Secret{{}}
	w := network.NewEgress(*s.egress)
	w.Begin(&proxyclient.Proxy{}, "id", *s.egress, nil, nil)
	if err := s.trust(w); err == nil {
		t.Error("a sandbox with secrets was made without a proxy")
	}
}
