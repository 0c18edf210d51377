package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// least is the length of the shortest value that is searched for. From encodedFrom on, the encoded forms of a
// value are long enough to be unambiguous.
const (
	least       = 4
	encodedFrom = 8
)

// Values is an immutable set of values to blank. A nil *Values blanks nothing.
type Values struct {
	forms  [][]byte
	folded [][]byte // the forms in lower case
	base64 [][]byte // those that may be broken into lines
}

// New returns the Values for values. It returns nil if all of them are shorter than least.
func New(values ...string) *Values {
	var v Values
	for _, s := range values {
		for _, form := range forms(s) {
			if !contains(v.forms, form) {
				v.forms = append(v.forms, []byte(form))
				v.folded = append(v.folded, bytes.ToLower([]byte(form)))
			}
		}
		for _, form := range inBase64(s) {
			if !contains(v.base64, form) {
				v.base64 = append(v.base64, []byte(form))
			}
		}
	}
	if v.forms == nil {
		return nil
	}
	return &v
}

func contains(all [][]byte, form string) bool {
	return slices.ContainsFunc(all, func(b []byte) bool { return string(b) == form })
}

// forms returns the encodings in which a value is searched for.
func forms(value string) []string {
	if len(value) < least {
		return nil
	}
	all := []string{value}
	if len(value) < encodedFrom {
		return all
	}
	all = append(all, inBase64(value)...)
	all = append(all, hex.EncodeToString([]byte(value)), strings.ToUpper(hex.EncodeToString([]byte(value))))
	for _, escaped := range []string{url.QueryEscape(value), url.PathEscape(value), percent(value, "-_.~"), percent(value, "-_.~/"), percent(value, "-_.~!'()*")} {
		all = append(all, escaped, lowerHex(escaped))
	}
	for _, marks := range [][2]string{{"&#34;", "&#39;"}, {"&quot;", "&#39;"}, {"&quot;", "&#x27;"}, {"&quot;", "&#039;"}, {"&quot;", "&apos;"}} {
		all = append(all, strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, marks[0], "'", marks[1]).Replace(value))
	}
	for _, html := range []bool{true, false} {
		once := inJSON(value, html)
		slashed := strings.ReplaceAll(once, "/", `\/`)
		all = append(all, once, slashed, inJSON(once, html), inJSON(slashed, html), strings.ReplaceAll(inJSON(slashed, html), "/", `\/`))
	}
	return all
}

// percent escapes all bytes except letters, digits and the bytes in safe, as the quoting functions of other languages do.
func percent(s, safe string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(safe, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// inBase64 returns the forms of a value in base64: in both alphabets, after 0, 1 and 2 bytes of a group of three.
func inBase64(value string) (all []string) {
	if len(value) < encodedFrom {
		return nil
	}
	for _, code := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			all = append(all, inside(code, before, value))
		}
	}
	return all
}

// inside returns the part of a longer text's base64 that depends only on value. before is the number of bytes
// ahead of value, modulo 3, as three bytes become four characters.
func inside(code *base64.Encoding, before int, value string) string {
	s := code.EncodeToString([]byte(strings.Repeat("\x00", before) + value))
	return s[(before*8+5)/6 : (before+len(value))*8/6]
}

// lowerHex lowers the hexadecimal digits of percent escapes, as programs other than Go write them.
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
	e.Encode(s) // encoding a string to memory cannot fail
	return strings.Trim(b.String(), "\"\n")
}
