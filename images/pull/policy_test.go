package pull

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"go.podman.io/image/v5/signature"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// payload returns the text to sign: a name and a digest.
func payload(kind, name string, d oci.Digest) []byte {
	return fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},"type":%q},"optional":{}}`, name, d, kind)
}

// aKey returns a new key pair.
func aKey(t *testing.T) *openpgp.Entity {
	t.Helper()
	key, err := openpgp.NewEntity("Signer", "", "signer@example.org", &packet.Config{
		Algorithm: packet.PubKeyAlgoEdDSA, Time: func() time.Time { return time.Now().Add(-2 * time.Hour) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func publicKey(t *testing.T, key *openpgp.Entity) string {
	t.Helper()
	var b bytes.Buffer
	if err := key.Serialize(&b); err != nil {
		t.Fatal(err)
	}
	return write(t, filepath.Join(t.TempDir(), "key.gpg"), b.String())
}

// sign returns a signed message, like `gpg --sign`.
func sign(t *testing.T, key *openpgp.Entity, text []byte, config *packet.Config) string {
	t.Helper()
	var b bytes.Buffer
	w, err := openpgp.Sign(&b, key, nil, config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// compress returns a compressed message, like `gpg --sign` makes by default.
func compress(t *testing.T, message string) string {
	t.Helper()
	var b bytes.Buffer
	w, err := packet.SerializeCompressed(unclosed{&b}, packet.CompressionZIP, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, message); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }

// TestSignatureBomb checks that a signature cannot make the verifier decompress without bound. The mechanism of
// the build tag containers_image_openpgp has no bound: it needs 2.6 GiB for a signature of 1 MiB.
func TestSignatureBomb(t *testing.T) {
	key := aKey(t)
	var ring bytes.Buffer
	if err := key.Serialize(&ring); err != nil {
		t.Fatal(err)
	}
	bomb := compress(t, sign(t, key, make([]byte, 64<<20), nil))
	m, _, err := signature.NewEphemeralGPGSigningMechanism(ring.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	text, _, err := m.Verify([]byte(bomb))
	if err == nil || len(text) > 0 || !strings.Contains(err.Error(), "exceeds provided limit") {
		t.Errorf("%d bytes became %d: %v", len(bomb), len(text), err)
	}
}

// TestPolicySignedBy checks that an image is pulled only with a signature by the right key for this image and
// name. Otherwise no part is fetched, not even its configuration.
func TestPolicySignedBy(t *testing.T) {
	right, wrong := aKey(t), aKey(t)
	old := &packet.Config{SigLifetimeSecs: 60, Time: func() time.Time { return time.Now().Add(-time.Hour) }}
	const atomic = "atomic container signature"
	for _, c := range []struct {
		name string
		sig  func(name string, d oci.Digest) string // returns "" for no signature
		ok   bool
	}{
		{"right", func(n string, d oci.Digest) string { return sign(t, right, payload(atomic, n, d), nil) }, true},
		{"none", func(string, oci.Digest) string { return "" }, false},
		{"of a stranger", func(n string, d oci.Digest) string { return sign(t, wrong, payload(atomic, n, d), nil) }, false},
		{"of another image", func(n string, d oci.Digest) string {
			return sign(t, right, payload(atomic, n, oci.DigestOf(nil)), nil)
		}, false},
		{"of another name", func(n string, d oci.Digest) string {
			return sign(t, right, payload(atomic, "x.example/o:1", d), nil)
		}, false},
		{"expired", func(n string, d oci.Digest) string { return sign(t, right, payload(atomic, n, d), old) }, false},
		{"changed", func(n string, d oci.Digest) string {
			s := sign(t, right, payload(atomic, n, d), nil)
			return strings.Replace(s, "docker-reference", "docker-referencf", 1)
		}, false},
		{"compressed to a thousandth", func(n string, d oci.Digest) string {
			return compress(t, sign(t, right, append(payload(atomic, n, d), make([]byte, 64<<20)...), nil))
		}, false},
		{"compressed", func(n string, d oci.Digest) string { return compress(t, sign(t, right, payload(atomic, n, d), nil)) }, true},
		{"not a signature", func(n string, d oci.Digest) string { return string(payload(atomic, n, d)) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRegistry(t)
			img := anImage(t, runtime.GOARCH, 100, 1)
			ref := r.push(t, "o/n:1", img)
			d, err := img.Digest()
			if err != nil {
				t.Fatal(err)
			}
			o := r.options(t)
			policy := `{"default":[{"type":"reject"}],"transports":{"docker":{%q:[{"type":"signedBy","keyType":"GPGKeys","keyPath":%q}]}}}`
			write(t, o.System.SignaturePolicyPath, fmt.Sprintf(policy, r.host, publicKey(t, right)))
			aside := t.TempDir()
			write(t, filepath.Join(o.System.RegistriesDirPath, "r.yaml"), fmt.Sprintf("docker:\n  %s:\n    lookaside: file://%s\n", r.host, aside))
			if sig := c.sig(ref.Full, oci.Digest(d.String())); sig != "" {
				dir := filepath.Join(aside, "o", "n@sha256="+d.Hex)
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(dir, "signature-1"), sig)
			}
			r.behave(nil)
			_, err = Image(context.Background(), ref, o)
			judged(t, r, o.Store, err, c.ok)
		})
	}
}

// TestPolicyPresent checks that a pull judges an image that the store has by the policy of now. It asks the registry
// for signatures only if the policy needs them.
func TestPolicyPresent(t *testing.T) {
	key := aKey(t)
	r := newRegistry(t)
	img := anImage(t, runtime.GOARCH, 100, 1)
	ref := r.push(t, "o/n:1", img)
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	o := r.options(t)
	if _, err := Image(context.Background(), ref, o); err != nil {
		t.Fatal(err)
	}
	aside := t.TempDir()
	write(t, filepath.Join(o.System.RegistriesDirPath, "r.yaml"), fmt.Sprintf("docker:\n  %s:\n    lookaside: file://%s\n", r.host, aside))
	dir := filepath.Join(aside, "o", "n@sha256="+d.Hex)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	signed := fmt.Sprintf(`{"default":[{"type":"reject"}],"transports":{"docker":{%q:[{"type":"signedBy","keyType":"GPGKeys","keyPath":%q}]}}}`, r.host, publicKey(t, key))
	for _, c := range []struct {
		policy, sig string
		want        events.Code
		manifests   int
	}{
		{`{"default":[{"type":"insecureAcceptAnything"}]}`, "", "", 0},
		{`{"default":[{"type":"reject"}]}`, "", events.CodePolicy, -1},
		{signed, "", events.CodePolicy, -1},
		{signed, sign(t, key, payload("atomic container signature", ref.Full, oci.Digest(d.String())), nil), "", -1},
	} {
		write(t, o.System.SignaturePolicyPath, c.policy)
		if c.sig != "" {
			write(t, filepath.Join(dir, "signature-1"), c.sig)
		}
		for _, name := range []imageref.Ref{ref, parseRef(t, r.host+"/o/n@"+d.String())} {
			if _, err := o.Store.Lookup(name); err != nil {
				continue
			}
			r.behave(nil)
			_, err := Image(context.Background(), name, o)
			if (err == nil) != (c.want == "") || err != nil && Classify(err) != c.want {
				t.Errorf("%s: %v is %q, want %q", c.policy, err, Classify(err), c.want)
			}
			if n, _ := r.count("GET", "/manifests/"); c.manifests >= 0 && n != c.manifests {
				t.Errorf("%s: %d manifests were asked for", c.policy, n)
			}
		}
	}
}

// judged compares the result of a pull with the expected decision of the policy.
func judged(t *testing.T, r *aRegistry, s *images.Store, err error, ok bool) {
	t.Helper()
	if ok {
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if got := Classify(err); err == nil || got != events.CodePolicy {
		t.Errorf("%v is %q", err, got)
	}
	if n, _ := r.count("GET", "/o/n/blobs/"); n != 0 {
		t.Errorf("%d blobs were asked for", n)
	}
	holdsNothing(t, s)
}

// TestPolicySigstore checks the same for signatures that cosign makes with a key and stores in the registry.
func TestPolicySigstore(t *testing.T) {
	right, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(right.Public())
	if err != nil {
		t.Fatal(err)
	}
	public := write(t, filepath.Join(t.TempDir(), "cosign.pub"), string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	for _, c := range []struct {
		name string
		key  *ecdsa.PrivateKey
		ok   bool
	}{{"right", right, true}, {"wrong", wrong, false}, {"none", nil, false}} {
		t.Run(c.name, func(t *testing.T) {
			r := newRegistry(t)
			img := anImage(t, runtime.GOARCH, 100, 1)
			ref := r.push(t, "o/n:1", img)
			d, err := img.Digest()
			if err != nil {
				t.Fatal(err)
			}
			if c.key != nil {
				r.cosign(t, c.key, "o/n:sha256-"+d.Hex+".sig", payload("cosign container image signature", ref.Full, oci.Digest(d.String())))
			}
			o := r.options(t)
			policy := `{"default":[{"type":"reject"}],"transports":{"docker":{%q:[{"type":"sigstoreSigned","keyPath":%q}]}}}`
			write(t, o.System.SignaturePolicyPath, fmt.Sprintf(policy, r.host, public))
			write(t, filepath.Join(o.System.RegistriesDirPath, "r.yaml"), fmt.Sprintf("docker:\n  %s:\n    use-sigstore-attachments: true\n", r.host))
			_, err = Image(context.Background(), ref, o)
			if c.ok && err != nil {
				t.Fatal(err)
			}
			if !c.ok && Classify(err) != events.CodePolicy {
				t.Errorf("%v is %q", err, Classify(err))
			}
		})
	}
}

// cosign attaches a signature to an image.
func (r *aRegistry) cosign(t *testing.T, key crypto.Signer, as string, text []byte) {
	t.Helper()
	sum := sha256.Sum256(text)
	sig, err := key.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	const simple = "application/vnd.dev.cosign.simplesigning.v1+json"
	img, err := mutate.Append(mutate.MediaType(empty.Image, "application/vnd.oci.image.manifest.v1+json"), mutate.Addendum{
		Layer: static.NewLayer(text, simple), MediaType: simple,
		Annotations: map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(sig)},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.push(t, as, img)
}

// TestPolicyFiles checks that all images are allowed without a policy.json. If a policy.json is unreadable, or
// the environment names a missing one, all are refused.
func TestPolicyFiles(t *testing.T) {
	r := newRegistry(t)
	ref := r.push(t, "o/n:1", anImage(t, runtime.GOARCH, 100, 1))
	for _, c := range []struct {
		name, text, env string
		code            events.Code
	}{
		{name: "none"},
		{name: "broken", text: "{", code: events.CodePolicy},
		{name: "reject", text: `{"default":[{"type":"reject"}]}`, code: events.CodePolicy},
		{name: "accept", text: `{"default":[{"type":"insecureAcceptAnything"}]}`},
		{name: "named and missing", env: "/nonexistent/policy.json", code: events.CodePolicy},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := t.TempDir()
			t.Setenv("XDG_CONFIG_HOME", config)
			t.Setenv("CONTAINERS_POLICY_JSON", c.env)
			o := r.options(t)
			o.System.SignaturePolicyPath = ""
			if c.text != "" {
				dir := filepath.Join(config, "containers")
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(dir, "policy.json"), c.text)
			}
			_, err := Image(context.Background(), ref, o)
			if c.code == "" && err != nil || c.code != "" && Classify(err) != c.code {
				t.Errorf("%v is %q", err, Classify(err))
			}
		})
	}
}
