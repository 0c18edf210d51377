package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// least is the shortest value that is looked for; encodedFrom the shortest of which the
// encoded forms are long enough to mean it.
const (
	least       = 4
	encodedFrom = 8
)

// Values are what to blank. The nil Values blank nothing. They do not change.
type Values struct {
	forms  [][]byte
	folded [][]byte // the forms in lower case
}

// New makes them. It gives nil when there is nothing to look for.
func New(values ...string) *Values {
	var v Values
	for _, s := range values {
		for _, form := range forms(s) {
			if !slices.ContainsFunc(v.forms, func(b []byte) bool { return string(b) == form }) {
				v.forms = append(v.forms, []byte(form))
				v.folded = append(v.folded, bytes.ToLower([]byte(form)))
			}
		}
	}
	if v.forms == nil {
		return nil
	}
	return &v
}

// Text gives s with every value blanked.
func (v *Values) Text(s string) string {
	if v == nil {
		return s
	}
	return string((&stream{values: v}).pass([]byte(s), true))
}

// FoldedText gives s with every value blanked, in whatever case its letters are. It is for
// names of HTTP headers, whose case parsers change.
func (v *Values) FoldedText(s string) string {
	if v == nil {
		return s
	}
	lower := bytes.ToLower([]byte(s))
	if len(lower) != len(s) { // not ASCII: no parser of HTTP folds that
		return v.Text(s)
	}
	blanked := (&stream{values: &Values{forms: v.folded}}).pass(lower, true)
	out := []byte(s)
	for i, c := range blanked {
		if c == '*' {
			out[i] = '*'
		}
	}
	return string(out)
}

// forms are the ways in which a value may be written.
func forms(value string) []string {
	if len(value) < least {
		return nil
	}
	all := []string{value}
	if len(value) < encodedFrom {
		return all
	}
	for _, code := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			all = append(all, inside(code, before, value))
		}
	}
	for _, escaped := range []string{url.QueryEscape(value), url.PathEscape(value)} {
		all = append(all, escaped, lowerHex(escaped))
	}
	return append(all, inJSON(value, true), inJSON(value, false))
}

// inside is what of the base64 of a longer text is value's alone, if that many bytes, of
// which three are four characters, come before it.
func inside(code *base64.Encoding, before int, value string) string {
	s := code.EncodeToString([]byte(strings.Repeat("\x00", before) + value))
	return s[(before*8+5)/6 : (before+len(value))*8/6]
}

// lowerHex is how others than Go write percent signs' digits.
func lowerHex(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:], bytes.ToLower(b[i+1:i+3]))
		}
	}
	return string(b)
}

func inJSON(s string, html bool) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(html)
	e.Encode(s) // to memory, of a string: never fails
	return strings.Trim(b.String(), "\"\n")
}
