// Package gpgme replaces the cgo binding of the same import path (see go.mod). With it, the signature package of
// go.podman.io/image/v5 compiles without libgpgme, cgo or a build tag: a plain `go build ./...` works from a clean
// clone.
//
// It offers only the names that package signature uses, built on go-crypto's OpenPGP. It imports public keys (Import)
// and checks a signed message against them alone (Verify). It does not sign, decrypt, read a key ring from $GNUPGHOME
// or contact an agent. A signature is accepted only if go-crypto accepts it now. An expired signature or key, a
// revoked key, a weak hash and an unknown key are refused.
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

// Constants that package signature passes to this one. They have the values of gpgme.h.
const (
	ProtocolOpenPGP  Protocol     = 0
	PinEntryLoopback PinEntryMode = 4
	SigModeNormal    SigMode      = 0
	ValidityNever    Validity     = 3
)

// Types of gpgme that appear in the signatures below.
type (
	Protocol     int
	PinEntryMode int
	SigMode      int
	Validity     int
	// Callback would supply a passphrase for signing.
	Callback func(uidHint string, prevWasBad bool, f *os.File) error
)

// ErrUnsupported is returned by functions that need a real GnuPG.
var ErrUnsupported = errors.New("signing with OpenPGP keys is not supported")

// maxMessage is the largest signed message, after decompression. The message comes from a registry.
const maxMessage = 4 << 20

// Data is a message to read or the destination of one.
type Data struct {
	in  []byte
	out io.Writer
}

// NewDataBytes returns a Data that reads b.
func NewDataBytes(b []byte) (*Data, error) { return &Data{in: b}, nil }

// NewDataWriter returns a Data that writes to w.
func NewDataWriter(w io.Writer) (*Data, error) { return &Data{out: w}, nil }

// Context holds the imported keys. It is not safe for concurrent use.
type Context struct{ keys openpgp.EntityList }

// New returns a Context without keys.
func New() (*Context, error) { return &Context{}, nil }

func (*Context) SetArmor(bool)    {}
func (*Context) SetTextMode(bool) {}

// SetEngineInfo does nothing: this package uses no engine program or home directory, only imported keys.
func (*Context) SetEngineInfo(Protocol, string, string) error { return nil }

// SetProtocol refuses every protocol except OpenPGP.
func (*Context) SetProtocol(p Protocol) error {
	if p != ProtocolOpenPGP {
		return fmt.Errorf("protocol %d is not OpenPGP", p)
	}
	return nil
}

func (*Context) SetCallback(Callback) error               { return ErrUnsupported }
func (*Context) SetPinEntryMode(PinEntryMode) error       { return ErrUnsupported }
func (*Context) Sign([]*Key, *Data, *Data, SigMode) error { return ErrUnsupported }

// Key is an imported public key.
type Key struct{ name string }

// Fingerprint returns the fingerprint of the primary key, in upper-case hexadecimal.
func (k *Key) Fingerprint() string { return k.name }

// GetKey returns the imported key whose primary key or sub-key has the fingerprint name.
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

// ImportResult has one entry for each imported key.
type ImportResult struct{ Imports []ImportStatus }

// ImportStatus is the result for one key. Result is always nil, because Import refuses a ring with a bad key as a
// whole.
type ImportStatus struct {
	Result      error
	Fingerprint string
}

// Import imports the public keys of a ring, armoured or binary.
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

// Signature is the result of checking one signature. The signature is valid only if Status is nil.
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
	// go-crypto checks the signature only after the text has been read to its end.
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
