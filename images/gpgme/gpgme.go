// Package gpgme stands in for the cgo binding of the same import path (go.mod replaces it), so that the signature
// package of go.podman.io/image/v5 compiles without libgpgme, without cgo and without a build tag: a plain
// `go build ./...` works from a clean clone.
//
// It offers the names that package signature uses and no more, on go-crypto's OpenPGP. What it does: take public keys
// (Import) and check a signed message against them alone (Verify). What it does not: sign, decrypt, read a key ring
// from $GNUPGHOME, ask an agent. A signature is accepted only when go-crypto accepts it now: an expired signature or
// key, a revoked key, a weak hash and an unknown key are all refused.
package gpgme

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// Words of the binding that package signature passes back to us.
const (
	ProtocolOpenPGP  Protocol     = 0
	PinEntryLoopback PinEntryMode = 4
	SigModeNormal    SigMode      = 0
	ValidityNever    Validity     = 3
)

// Numbers of gpgme's, for what the calls below are told.
type (
	Protocol     int
	PinEntryMode int
	SigMode      int
	Validity     int
	// Callback would hand a passphrase to a signer.
	Callback func(uidHint string, prevWasBad bool, f *os.File) error
)

// ErrUnsupported is the answer to what only a real GnuPG can do.
var ErrUnsupported = errors.New("signing with OpenPGP keys is not supported")

// maxMessage bounds a signed message, which a registry sends and may have compressed.
const maxMessage = 4 << 20

// Data is a message on its way in or out.
type Data struct {
	in  []byte
	out io.Writer
}

// NewDataBytes is a message to be read.
func NewDataBytes(b []byte) (*Data, error) { return &Data{in: b}, nil }

// NewDataWriter is where a message goes.
func NewDataWriter(w io.Writer) (*Data, error) { return &Data{out: w}, nil }

// Context holds the keys that were imported into it. One goroutine at a time.
type Context struct{ keys openpgp.EntityList }

// New has no key.
func New() (*Context, error) { return &Context{}, nil }

func (*Context) SetArmor(bool)    {}
func (*Context) SetTextMode(bool) {}

// SetEngineInfo names a program and a home, of which there is none: the keys are those imported.
func (*Context) SetEngineInfo(Protocol, string, string) error { return nil }

// SetProtocol refuses all but OpenPGP.
func (*Context) SetProtocol(p Protocol) error {
	if p != ProtocolOpenPGP {
		return fmt.Errorf("protocol %d is not OpenPGP", p)
	}
	return nil
}

func (*Context) SetCallback(Callback) error               { return ErrUnsupported }
func (*Context) SetPinEntryMode(PinEntryMode) error       { return ErrUnsupported }
func (*Context) Sign([]*Key, *Data, *Data, SigMode) error { return ErrUnsupported }

// Key is a public key that was imported.
type Key struct{ name string }

// Fingerprint is that of the primary key, in upper-case hexadecimal.
func (k *Key) Fingerprint() string { return k.name }

// GetKey finds an imported key by the fingerprint of itself or of one of its sub-keys.
func (c *Context) GetKey(name string, secret bool) (*Key, error) {
	if secret {
		return nil, ErrUnsupported
	}
	for _, e := range c.keys {
		if hasKey(e, name) {
			return &Key{name: fingerprint(e.PrimaryKey)}, nil
		}
	}
	return nil, fmt.Errorf("key %q: not imported", name)
}

func hasKey(e *openpgp.Entity, name string) bool {
	if strings.EqualFold(fingerprint(e.PrimaryKey), name) {
		return true
	}
	for _, sub := range e.Subkeys {
		if strings.EqualFold(fingerprint(sub.PublicKey), name) {
			return true
		}
	}
	return false
}

func fingerprint(k *packet.PublicKey) string {
	return strings.ToUpper(hex.EncodeToString(k.Fingerprint))
}

// ImportResult has an entry per key that was in the data.
type ImportResult struct{ Imports []ImportStatus }

// ImportStatus is one key; Result is nil, for a ring with a bad key is refused whole.
type ImportStatus struct {
	Result      error
	Fingerprint string
}

// Import takes the public keys of a ring, armoured or not.
func (c *Context) Import(d *Data) (*ImportResult, error) {
	ring, err := openpgp.ReadKeyRing(bytes.NewReader(d.in))
	if err != nil {
		armoured, other := openpgp.ReadArmoredKeyRing(bytes.NewReader(d.in))
		if other != nil {
			return nil, fmt.Errorf("read key ring: %w", err)
		}
		ring = armoured
	}
	result := &ImportResult{}
	for _, e := range ring {
		c.keys = append(c.keys, e)
		result.Imports = append(result.Imports, ImportStatus{Fingerprint: fingerprint(e.PrimaryKey)})
	}
	return result, nil
}

// Signature is what was found of one signature. Only one with a nil Status holds.
type Signature struct {
	Fingerprint    string
	Status         error
	Validity       Validity
	ValidityReason error
	WrongKeyUsage  bool
}

// Verify reads a signed message, writes its text to out and reports its signatures. The text means nothing unless
// exactly one signature is reported and its Status is nil. A detached signature (signed is not nil) is not supported.
func (c *Context) Verify(sig, signed, out *Data) (string, []Signature, error) {
	if signed != nil {
		return "", nil, ErrUnsupported
	}
	limit := int64(maxMessage)
	md, err := openpgp.ReadMessage(bytes.NewReader(sig.in), c.keys, nil, &packet.Config{MaxDecompressedMessageSize: &limit})
	if err != nil {
		return "", nil, fmt.Errorf("read signature: %w", err)
	}
	// The signature can be judged only when the text was read to its end.
	if _, err := io.Copy(out.out, md.UnverifiedBody); err != nil {
		return "", nil, fmt.Errorf("read signed text: %w", err)
	}
	if !md.IsSigned {
		return "", nil, nil
	}
	found := []Signature{judge(md)}
	for range md.UnverifiedSignatures {
		found = append(found, Signature{Status: errors.New("a second signature")})
	}
	return md.LiteralData.FileName, found, nil
}

func judge(md *openpgp.MessageDetails) Signature {
	switch {
	case md.SignatureError != nil:
		return Signature{Status: md.SignatureError}
	case md.SignedBy == nil:
		return Signature{Status: fmt.Errorf("key %016X: not imported", md.SignedByKeyId)}
	case md.Signature == nil:
		return Signature{Status: errors.New("the signature was not read")}
	}
	return Signature{Fingerprint: fingerprint(md.SignedBy.Entity.PrimaryKey)}
}
