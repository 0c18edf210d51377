package oci

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// A Digest names content: "sha256:" and 64 lower-case hex digits. One that came from [ParseDigest],
// or out of JSON, is of that form or empty, so its hex digits are safe as a file name.
//
// It is the string of go-digest's type, converted by `digest.Digest(d)`. That package compiles
// regular expressions before main, 0.25 ms that each `demesne run` would pay.
type Digest string

// Algorithm begins every [Digest].
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

// DigestFrom returns the digest that a SHA-256 sum is.
func DigestFrom(sum []byte) Digest { return Digest(Algorithm + hex.EncodeToString(sum)) }

// Encoded returns the hex digits.
func (d Digest) Encoded() string { return strings.TrimPrefix(string(d), Algorithm) }

func (d Digest) String() string { return string(d) }

// UnmarshalText refuses all that [ParseDigest] does, but the empty string.
func (d *Digest) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*d = ""
		return nil
	}
	parsed, err := ParseDigest(string(b))
	*d = parsed
	return err
}

// IsHex says whether s has lower-case hex digits and nothing else.
func IsHex(s string) bool {
	return strings.Trim(s, "0123456789abcdef") == ""
}

// Clip shortens what somebody else wrote, for an error.
func Clip(s string) string {
	if len(s) <= 80 {
		return s
	}
	return s[:77] + "..."
}
