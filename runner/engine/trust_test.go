package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"demesne/proxy"
	"demesne/runner"
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
	if trust(runner.Spec{}, nil) != nil {
		t.Error("a sandbox without a network is to trust somebody")
	}
	secret, err := proxy.NewSecret("T", "v", "a.test", "")
	if err != nil {
		t.Fatal(err)
	}
	for name, secrets := range map[string][]proxy.Secret{"no secrets": nil, "secrets": {secret}} {
		o, err := newOutlet("id", &egress{secrets: secrets}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer o.close()
		if got := trust(runner.Spec{}, o); (len(got.Extra) > 0) != (secrets != nil) {
			t.Errorf("%s: %q", name, got.Extra)
		}
	}
}
