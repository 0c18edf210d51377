package push

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.podman.io/image/v5/signature/sigstore"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/pull"
)

// newKey writes a key pair and returns the paths of the private and the public key.
func newKey(t *testing.T, passphrase string) (private, public string) {
	t.Helper()
	pair, err := sigstore.GenerateKeyPair([]byte(passphrase))
	if err != nil {
		t.Fatal(err)
	}
	private, public = filepath.Join(t.TempDir(), "key"), filepath.Join(t.TempDir(), "key.pub")
	for file, text := range map[string][]byte{private: pair.PrivateKey, public: pair.PublicKey} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return private, public
}

// TestPushSigned checks that a policy that wants a signature by a key accepts a signed image, and no other: not an
// unsigned one, one signed by another key, or one that was signed under another name.
func TestPushSigned(t *testing.T) {
	r, s := newRegistry(t), newShop(t)
	img := s.image("local/app", 1000)
	mine, public := newKey(t, "hunter2")
	other, _ := newKey(t, "hunter2")
	signer := func(file string) func(*Options) {
		k, err := NewSigner(file, []byte("hunter2"))
		if err != nil {
			t.Fatal(err)
		}
		return func(o *Options) { o.Signer = k }
	}
	s.pushed(img, r.host+"/o/unsigned:1")
	s.pushed(img, r.host+"/o/other:1", signer(other))
	first := s.pushed(img, r.host+"/o/mine:1", signer(mine))
	if s.pushed(img, r.host+"/o/mine:1", signer(mine)) != first { // a second signature beside the first
		t.Error("a signature changed the image")
	}
	s.pushed(img, r.host+"/o/both:1", signer(other))
	s.pushed(img, r.host+"/o/both:1", signer(mine))
	for file, text := range map[string]string{
		s.sys.SignaturePolicyPath:                          fmt.Sprintf(`{"default":[{"type":"sigstoreSigned","keyPath":%q,"signedIdentity":{"type":"matchExact"}}]}`, public),
		filepath.Join(s.sys.RegistriesDirPath, "all.yaml"): "default-docker:\n  use-sigstore-attachments: true\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, ok := range map[string]bool{"unsigned": false, "other": false, "mine": true, "both": true} {
		store, err := images.Open(filepath.Join(t.TempDir(), "store"))
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		_, err = pull.Image(context.Background(), parse(t, r.host+"/o/"+name+":1"), pull.Options{Store: store, System: s.sys, Platform: pull.Platform{OS: "linux", Architecture: "amd64"}})
		if (err == nil) != ok || err != nil && pull.Classify(err) != events.CodePolicy {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSignerRefused checks that keys that cannot sign are refused, each with a reason.
func TestSignerRefused(t *testing.T) {
	key, public := newKey(t, "hunter2")
	pgp := filepath.Join(t.TempDir(), "pgp")
	if err := os.WriteFile(pgp, []byte("-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nxxxx\n-----END PGP PRIVATE KEY BLOCK-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ file, passphrase, part string }{
		{key, "wrong", "wrong passphrase"}, {key, "", "wrong passphrase"}, {public, "", "not an encrypted"},
		{pgp, "", "GnuPG"}, {"/dev/null", "", "GnuPG"}, {"/dev/zero", "", "longer than"}, {key + "x", "", "no such file"}, {t.TempDir(), "", "directory"},
	} {
		if _, err := NewSigner(c.file, []byte(c.passphrase)); err == nil || !strings.Contains(err.Error(), c.part) || pull.Classify(err) != events.CodeInvalid {
			t.Errorf("%q: %v", c.file, err)
		}
	}
}
