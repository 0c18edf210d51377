package layers

import (
	"fmt"
	"strings"
)

// A DiffID names a layer: "sha256:" and 64 digits, the hash of its uncompressed archive. It is the string
// of go-digest's type, which compiles regular expressions before main.
type DiffID string

const algorithm = "sha256:"

// Validate tells whether id is a DiffID.
func (id DiffID) Validate() error {
	hex, ok := strings.CutPrefix(string(id), algorithm)
	if !ok || !isHex(hex) {
		return fmt.Errorf("%.100q is no sha256 digest", string(id))
	}
	return nil
}

// encoded is the name of the layer's directory.
func (id DiffID) encoded() (string, error) {
	if err := id.Validate(); err != nil {
		return "", err
	}
	return string(id[len(algorithm):]), nil
}

// isHex tells whether name is what encoded returns.
func isHex(name string) bool {
	return len(name) == 64 && strings.Trim(name, "0123456789abcdef") == ""
}
