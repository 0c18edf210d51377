package oci

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// A Digest identifies content: "sha256:" and 64 lower-case hex digits. A Digest from [ParseDigest]
// or from JSON has that form or is empty, so its hex digits are safe as a file name.
//
// `digest.Digest(d)` converts it to the type of go-digest. That package is not imported: it
// compiles regular expressions before main, which takes 0.25 ms in each `demesne run`.
type Digest string

// Algorithm is the prefix of every [Digest].
const Algorithm = "sha256:"

// ParseDigest returns s as a digest.
func ParseDigest(s string) (Digest, error) {
	rest, ok := strings.CutPrefix(s, Algorithm)
	if !ok {
		return "", fmt.Errorf("parse digest %q: only sha256 is supported", Clip(s))
	}
	if len(rest) != 2*sha256.Size || !IsHex(rest) {
		return "", fmt.Errorf("parse digest %q: not 64 lower-case hex digits", Clip(s))
	}
	return Digest(s), nil
}

// DigestOf returns the digest of b.
func DigestOf(b []byte) Digest {
	sum := sha256.Sum256(b)
	return DigestFrom(sum[:])
}

// DigestFrom returns the digest for a SHA-256 sum.
func DigestFrom(sum []byte) Digest { return Digest(Algorithm + hex.EncodeToString(sum)) }

// Encoded returns the hex digits.
func (d Digest) Encoded() string { return strings.TrimPrefix(string(d), Algorithm) }

func (d Digest) String() string { return string(d) }

// UnmarshalText parses b like [ParseDigest], and also accepts the empty string.
func (d *Digest) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*d = ""
		return nil
	}
	parsed, err := ParseDigest(string(b))
	*d = parsed
	return err
}

// IsHex reports whether s consists of lower-case hex digits. It is true for the empty string.
func IsHex(s string) bool {
	return strings.Trim(s, "0123456789abcdef") == ""
}

// Clip shortens untrusted text to 80 bytes, for an error message.
func Clip(s string) string {
	if len(s) <= 80 {
		return s
	}
	return s[:77] + "..."
}
