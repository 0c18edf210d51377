package push

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"

	"demesne/images/events"
	"demesne/images/oci"
)

// A Signer signs images with a private key of sigstore, as cosign and skopeo generate-sigstore-key make them. The library
// signs with such keys too, but only in its copy package. Verification is the library's: see images/pull.
type Signer struct{ key crypto.Signer }

// maxKey is the size of the largest key file.
const maxKey = 64 << 10

// NewSigner reads a private key that is encrypted with a passphrase.
func NewSigner(file string, passphrase []byte) (*Signer, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, errorf(events.CodeInvalid, "read key: %w", err)
	}
	defer f.Close()
	text, err := readAtMost(f, maxKey)
	if err != nil {
		return nil, errorf(events.CodeInvalid, "read key %q: %w", file, err)
	}
	block, _ := pem.Decode(text)
	switch {
	case block == nil, strings.Contains(block.Type, "PGP"):
		return nil, errorf(events.CodeInvalid, "read key %q: not a sigstore private key; OpenPGP keys are not supported, as they need GnuPG", file)
	case block.Type != "ENCRYPTED SIGSTORE PRIVATE KEY" && block.Type != "ENCRYPTED COSIGN PRIVATE KEY":
		return nil, errorf(events.CodeInvalid, "read key %q: %q is not an encrypted sigstore private key", file, oci.Clip(block.Type))
	}
	der, err := encrypted.Decrypt(block.Bytes, passphrase)
	if err != nil {
		return nil, errorf(events.CodeInvalid, "decrypt key %q: wrong passphrase, or damaged: %w", file, err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, errorf(events.CodeInvalid, "parse key %q: %w", file, err)
	}
	switch key := parsed.(type) {
	case *ecdsa.PrivateKey:
		return &Signer{key}, nil
	case *rsa.PrivateKey:
		return &Signer{key}, nil
	case ed25519.PrivateKey:
		return &Signer{key}, nil
	}
	return nil, errorf(events.CodeInvalid, "parse key %q: a key of type %T", file, parsed)
}

func (s *Signer) sign(message []byte) ([]byte, error) {
	if _, ok := s.key.(ed25519.PrivateKey); ok {
		return s.key.Sign(rand.Reader, message, crypto.Hash(0))
	}
	sum := sha256.Sum256(message)
	return s.key.Sign(rand.Reader, sum[:], crypto.SHA256)
}

// The formats of sigstore's signatures next to images.
const (
	signatureType       = "application/vnd.dev.cosign.simplesigning.v1+json"
	signatureAnnotation = "dev.cosignproject.cosign/signature"
	signatureKind       = "cosign container image signature"
)

// payload is the signed text: which image has which name.
func payload(name string, d oci.Digest, now time.Time) ([]byte, error) {
	return json.Marshal(map[string]any{
		"critical": map[string]any{
			"type":     signatureKind,
			"image":    map[string]any{"docker-manifest-digest": d},
			"identity": map[string]any{"docker-reference": name},
		},
		"optional": map[string]any{"creator": userAgent, "timestamp": now.Unix()},
	})
}

// sign adds a signature of the image. The signatures are layers of another image, under a tag made of the digest.
func (p *pusher) sign(ctx context.Context, name string, d oci.Digest) error {
	text, err := payload(name, d, time.Now())
	if err != nil {
		return err
	}
	signature, err := p.Signer.sign(text)
	if err != nil {
		return err
	}
	layer := oci.Descriptor{MediaType: signatureType, Digest: oci.DigestOf(text), Size: int64(len(text)),
		Annotations: map[string]string{signatureAnnotation: base64.StdEncoding.EncodeToString(signature)}}
	tag := strings.ReplaceAll(string(d), ":", "-") + ".sig"
	layers, err := p.signatures(ctx, tag)
	if err != nil {
		return err
	}
	layers = append(layers, layer)
	ids := make([]oci.Digest, len(layers))
	for i, l := range layers {
		ids[i] = l.Digest
	}
	config, err := json.Marshal(map[string]any{"architecture": "", "os": "", "config": map[string]any{}, "rootfs": map[string]any{"type": "layers", "diff_ids": ids}})
	if err != nil {
		return err
	}
	c := oci.Descriptor{MediaType: typeConfig, Digest: oci.DigestOf(config), Size: int64(len(config))}
	raw, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": oci.TypeOCIManifest, "config": c, "layers": layers})
	if err != nil {
		return err
	}
	if err := errors.Join(p.bytes(ctx, layer, text), p.bytes(ctx, c, config)); err != nil {
		return err
	}
	return p.manifest(ctx, tag, raw, oci.TypeOCIManifest)
}

// signatures returns the signatures that the image has.
func (p *pusher) signatures(ctx context.Context, tag string) ([]oci.Descriptor, error) {
	var raw []byte
	err := p.retry(ctx, "", func(ctx context.Context) (err error) {
		raw, err = p.to.getManifest(ctx, tag)
		return err
	})
	if err != nil || raw == nil {
		return nil, err
	}
	m, err := oci.ParseManifest(raw)
	if err != nil {
		return nil, errorf(events.CodeUnsupported, "read signatures: %w", err)
	}
	return slices.Clone(m.Layers[:min(len(m.Layers), oci.MaxLayers-1)]), nil
}

// bytes sends a small blob that is not in the store.
func (p *pusher) bytes(ctx context.Context, d oci.Descriptor, text []byte) error {
	open := func(context.Context, func(int64)) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(text)), nil
	}
	if _, err := p.blob(ctx, p.stored(d, open)); err != nil {
		return fmt.Errorf("push %s: %w", d.Digest, err)
	}
	return nil
}
