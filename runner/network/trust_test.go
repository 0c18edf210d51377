package network

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"demesne/runner"
	"demesne/runner/network/proxyclient"
)

func TestCertificates(t *testing.T) {
	const cert = "-----BEGIN CERTIFICATE-----\nMAYwADAAAwA=\n-----END CERTIFICATE-----\n"
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.crt": cert + "a", "sub/b.pem": "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n" + cert, "c.cer": cert + "c",
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
	if want := cert + cert + cert; got != want {
		t.Errorf("got %.200q, want %q", got, want)
	}
}

func TestTrust(t *testing.T) {
	var none *Egress
	if trust, err := none.Trust(true); err != nil || trust != nil {
		t.Errorf("a sandbox without a network trusts %v, %v", trust, err)
	}
	// Without secrets the proxy has no certificate, so Trust does not wait for its answer.
	if trust, err := NewEgress(runner.Egress{}).Trust(false); err != nil || len(trust.Extra) != 0 || trust.Host != (certificates(anchors) != nil) {
		t.Errorf("without secrets: %v, %v", trust, err)
	}
	caller := runner.Egress{Trust: runner.Trust{Host: true, PEM: []byte("mine")}}
	for _, image := range []bool{false, true} {
		if trust, err := NewEgress(caller).Trust(image); err != nil || !trust.Host || !strings.HasPrefix(string(trust.Extra), "mine") {
			t.Errorf("the caller's: %+v, %v", trust, err)
		}
	}
	asked := runner.Egress{Secrets: []runner.Secret{{}}}
	w := NewEgress(asked)
	w.Begin(&proxyclient.Proxy{}, proxyclient.Config{Sandbox: "id", Egress: asked})
	if _, err := w.Trust(false); err == nil {
		t.Error("a sandbox with secrets was made without a proxy")
	}
}
