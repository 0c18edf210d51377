package devcontainer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// MaxSize bounds a devcontainer.json, in bytes.
const MaxSize = 1 << 20

// decode decodes JSON that may have comments and trailing commas. Its errors have the line.
func decode(text []byte, to any) error {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if len(text) > MaxSize {
		return fmt.Errorf("longer than %d bytes", MaxSize)
	}
	plain, err := standardize(text)
	if err != nil {
		return err
	}
	err = json.Unmarshal(plain, to)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("line %d: %w", lineOf(plain, syntax.Offset), err)
	case errors.As(err, &kind) && kind.Field != "":
		return fmt.Errorf("line %d: %s: a value of another kind than %s is expected", lineOf(plain, kind.Offset), kind.Field, kind.Value)
	}
	return err
}

func lineOf(text []byte, offset int64) int {
	return 1 + bytes.Count(text[:min(int(offset), len(text))], []byte("\n"))
}

// standardize replaces comments and trailing commas by spaces, so that positions stay as they are. It leaves every other
// error to the parser of JSON.
func standardize(text []byte) ([]byte, error) {
	out := bytes.Clone(text)
	comma := -1          // position of the last comma, while only space and comments follow it
	var last, prior byte // the last byte that is no space, and the one before the comma
	for i := 0; i < len(out); {
		switch c := out[i]; {
		case c == '"':
			i = stringEnd(out, i)
			comma, last = -1, '"'
			continue
		case c == '/' && i+1 < len(out) && (out[i+1] == '/' || out[i+1] == '*'):
			end, err := commentEnd(out, i)
			if err != nil {
				return nil, err
			}
			blank(out[i:end])
			i = end
			continue
		case c == ',':
			comma, prior, last = i, last, c
		case c == '}' || c == ']':
			if comma >= 0 && bytes.IndexByte([]byte("[{,:\x00"), prior) < 0 {
				out[comma] = ' '
			}
			comma, last = -1, c
		case c != ' ' && c != '\t' && c != '\n' && c != '\r':
			comma, last = -1, c
		}
		i++
	}
	return out, nil
}

// stringEnd returns the position after the string that begins at i.
func stringEnd(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// commentEnd returns the position after the comment that begins at i. A comment of a line ends before the line's end.
func commentEnd(text []byte, i int) (int, error) {
	if text[i+1] == '/' {
		if n := bytes.IndexByte(text[i:], '\n'); n >= 0 {
			return i + n, nil
		}
		return len(text), nil
	}
	n := bytes.Index(text[i+2:], []byte("*/"))
	if n < 0 {
		return 0, fmt.Errorf("line %d: a comment has no end", lineOf(text, int64(i)))
	}
	return i + 2 + n + 2, nil
}

func blank(text []byte) {
	for i, c := range text {
		if c != '\n' {
			text[i] = ' '
		}
	}
}
