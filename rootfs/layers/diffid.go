package layers

import (
	"fmt"
	"strings"
)

// A DiffID identifies a layer: "sha256:" and 64 hex digits, the hash of its uncompressed archive. It is a plain
// string, as go-digest's type compiles regular expressions before main.
type DiffID string

const algorithm = "sha256:"

// Validate returns an error unless id is a valid DiffID.
func (id DiffID) Validate() error {
	hex, ok := strings.CutPrefix(string(id), algorithm)
	if !ok || !isHex(hex) {
		return fmt.Errorf("%.100q is not a sha256 digest", string(id))
	}
	return nil
}

// encoded returns the name of the layer's directory.
func (id DiffID) encoded() (string, error) {
	if err := id.Validate(); err != nil {
		return "", err
	}
	return string(id[len(algorithm):]), nil
}

// isHex reports whether name is one that encoded returns.
func isHex(name string) bool {
	return len(name) == 64 && strings.Trim(name, "0123456789abcdef") == ""
}
