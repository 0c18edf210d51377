package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"unicode/utf8"
)

// document checks that text is one JSON value in UTF-8, so that every parser reads the same from it. Its depth is that
// of [json.Valid] at most. The functions below then take it apart without a copy.
func document(text []byte) error {
	if !utf8.Valid(text) || !json.Valid(text) {
		return errors.New("it is not one JSON value in UTF-8")
	}
	return nil
}

// jsonText is the text of a JSON value, without white space around it. It is valid: see document.
type jsonText []byte

// first returns the first byte of v, which shows its kind: { [ " t f n - or a digit.
func (v jsonText) first() byte { return v[0] }

// text returns a string as its reader sees it, without escapes.
func (v jsonText) text() (s string, ok bool) {
	return s, v.first() == '"' && json.Unmarshal(v, &s) == nil
}

// elements returns the elements of an array.
func (v jsonText) elements() iter.Seq[jsonText] {
	return func(yield func(jsonText) bool) {
		for rest := trimmed(v[1:]); rest[0] != ']'; {
			n := length(rest)
			if !yield(jsonText(rest[:n])) {
				return
			}
			if rest = trimmed(rest[n:]); rest[0] == ',' {
				rest = trimmed(rest[1:])
			}
		}
	}
}

// members returns the members of an object. A name that occurs twice is an error: parsers differ in which one they take.
func (v jsonText) members() (map[string]jsonText, error) {
	all := map[string]jsonText{}
	for rest := trimmed(v[1:]); rest[0] != '}'; {
		n := length(rest)
		name, _ := jsonText(rest[:n]).text()
		rest = trimmed(trimmed(rest[n:])[1:]) // the colon
		if all[name] != nil {
			return nil, fmt.Errorf("the name %.40q occurs twice in an object", name)
		}
		n = length(rest)
		all[name] = jsonText(rest[:n])
		if rest = trimmed(rest[n:]); rest[0] == ',' {
			rest = trimmed(rest[1:])
		}
	}
	return all, nil
}

// trimmed returns valid JSON text without leading white space.
func trimmed(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t' || b[0] == '\n' || b[0] == '\r') {
		b = b[1:]
	}
	return b
}

// length returns the length of the value at the beginning of valid JSON text.
func length(b []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth < 0 {
				return i // of the value around it
			}
		case depth == 0 && (c == ',' || c == ':' || c == ' ' || c == '\t' || c == '\n' || c == '\r'):
			return i
		}
		if depth == 0 && !quoted && (b[i] == '"' || b[i] == '}' || b[i] == ']') {
			return i + 1
		}
	}
	return len(b)
}
