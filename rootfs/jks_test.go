package rootfs

import (
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestJavaStore checks that only certificates are stored, in order. If keytool is installed, it must read this
// machine's trusted certificates from a store.
func TestJavaStore(t *testing.T) {
	text := "# ours\n" + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("one")})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("two")})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("three")}))
	const want = "\xfe\xed\xfe\xed\x00\x00\x00\x02\x00\x00\x00\x02" +
		"\x00\x00\x00\x02\x00\x010\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05X.509\x00\x00\x00\x03one" +
		"\x00\x00\x00\x02\x00\x011\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05X.509\x00\x00\x00\x05three"
	if got := string(javaStore([]byte(text))); len(got) != len(want)+20 || !strings.HasPrefix(got, want) {
		t.Errorf("got %q", got)
	}
	keytool, err := exec.LookPath("keytool")
	host := readBundle(bundle(hostFile))
	if err != nil || host == nil {
		return
	}
	store := filepath.Join(t.TempDir(), "store")
	if err := os.WriteFile(store, javaStore(host), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(keytool, "-list", "-keystore", store, "-storepass", "changeit").CombinedOutput()
	if n := strings.Count(string(host), "-----BEGIN CERTIFICATE-----"); err != nil || strings.Count(string(out), "trustedCertEntry") != n {
		t.Errorf("%v, want %d certificates: %s", err, n, out)
	}
}
