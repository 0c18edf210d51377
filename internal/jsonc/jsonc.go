// Package jsonc reads JSON with comments and trailing commas, by github.com/tailscale/hujson. It bounds what that library
// takes from a stranger's text: its parser calls itself for each list and object, and half a million of them overflow the
// stack.
package jsonc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tailscale/hujson"
)

// maxBrackets bounds the brackets of a text, and thereby its depth: its parser takes at most 64 MiB of stack. Brackets in
// strings count too.
const maxBrackets = 30_000

// Standardize returns the text as JSON: spaces replace comments, trailing commas and a byte order mark, so that each offset
// stays the same. An error has the line. JSON without these returns as it is, whatever its size.
func Standardize(text []byte) ([]byte, error) {
	if json.Valid(text) { // it bounds the depth
		return text, nil
	}
	if bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > maxBrackets {
		return nil, fmt.Errorf("JSON with comments has more than %d brackets", maxBrackets)
	}
	end := len(text)
	text = append(bytes.Clone(text), '\n') // the parser wants an end of each comment
	if mark := []byte("\xef\xbb\xbf"); bytes.HasPrefix(text, mark) {
		copy(text, "   ")
	}
	text, err := hujson.Standardize(text)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "hujson: ")) // a user knows the file, not its parser
	}
	return text[:end], nil
}
