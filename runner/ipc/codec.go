package ipc

import (
	"bytes"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Package json analyzes a type, with all types below it, before it encodes or decodes the first value. For a program that
// lives for one message of each type this costs ten times as much as the message. marshal and unmarshal analyze only the
// fields that a value has. They leave everything but structs, pointers, slices and common scalars to package json, and
// agree with it on every type of the protocols (TestCodec).

// marshal is json.Marshal.
func marshal(value any) ([]byte, error) { return marshalAfter(0, value) }

// marshalAfter is marshal with n bytes before the text. Most messages fit into its buffer.
func marshalAfter(n int, value any) ([]byte, error) {
	return appendValue(make([]byte, n, 1<<10), reflect.ValueOf(value))
}

var rawType = reflect.TypeFor[json.RawMessage]()

// own reports whether a type encodes itself.
func own(t reflect.Type) bool {
	return t.NumMethod() > 0 && (t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]()))
}

func appendValue(b []byte, v reflect.Value) ([]byte, error) {
	if !v.IsValid() {
		return append(b, "null"...), nil
	}
	t := v.Type()
	switch {
	case t == rawType && v.Len() > 0:
		return append(b, v.Bytes()...), nil
	case own(t):
		return appendAny(b, v)
	case v.CanAddr() && t.PkgPath() != "" && own(reflect.PointerTo(t)):
		return appendAny(b, v.Addr())
	}
	switch v.Kind() {
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool()), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.AppendInt(b, v.Int(), 10), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.AppendUint(b, v.Uint(), 10), nil
	case reflect.String:
		if s := v.String(); isPlain(s) {
			return append(append(append(b, '"'), s...), '"'), nil
		}
	case reflect.Pointer, reflect.Interface:
		return appendValue(b, v.Elem()) // null if v is nil
	case reflect.Slice:
		switch {
		case v.IsNil():
			return append(b, "null"...), nil
		case t.Elem().Kind() == reflect.Uint8:
			return append(base64.StdEncoding.AppendEncode(append(b, '"'), v.Bytes()), '"'), nil
		}
		return appendList(b, v)
	case reflect.Struct:
		b, err := appendFields(append(b, '{'), v)
		return append(bytes.TrimSuffix(b, []byte(",")), '}'), err
	}
	return appendAny(b, v)
}

// appendAny leaves v to package json.
func appendAny(b []byte, v reflect.Value) ([]byte, error) {
	text, err := json.Marshal(v.Interface())
	return append(b, text...), err
}

// isPlain reports whether s is JSON between quotes.
func isPlain[T string | []byte](s T) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

func appendList(b []byte, v reflect.Value) (_ []byte, err error) {
	b = append(b, '[')
	for i := range v.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendValue(b, v.Index(i)); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

// appendFields appends the fields of a struct, each with a comma after it.
func appendFields(b []byte, v reflect.Value) (_ []byte, err error) {
	for i, f := range fields(v.Type()) {
		value := v.Field(i)
		switch {
		case f.skip || f.omitEmpty && isEmpty(value) || f.omitZero && isZero(value):
			continue
		case f.inline:
			b, err = appendFields(b, value)
		default:
			b = append(append(append(b, '"'), f.name...), '"', ':')
			b, err = appendValue(b, value)
			b = append(b, ',')
		}
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}

// fieldRule says how a field of a struct is encoded.
type fieldRule struct {
	name                              string
	skip, inline, omitEmpty, omitZero bool
}

// rules has the fields of each struct that was encoded or decoded: reflect.Type → []fieldRule.
var rules sync.Map

func fields(t reflect.Type) []fieldRule {
	if known, ok := rules.Load(t); ok {
		return known.([]fieldRule)
	}
	all := make([]fieldRule, t.NumField())
	for i := range all {
		all[i] = field(t.Field(i))
	}
	rules.Store(t, all)
	return all
}

func field(f reflect.StructField) (r fieldRule) {
	tag := f.Tag.Get("json")
	name, options, _ := strings.Cut(tag, ",")
	r.name = name
	if name == "" {
		r.name = f.Name
	}
	r.inline = f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct
	r.skip = tag == "-" || !f.IsExported() && !r.inline
	words := strings.Split(options, ",")
	r.omitEmpty, r.omitZero = slices.Contains(words, "omitempty"), slices.Contains(words, "omitzero")
	return r
}

func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

func isZero(v reflect.Value) bool {
	if z, ok := v.Interface().(interface{ IsZero() bool }); ok {
		return z.IsZero()
	}
	return v.IsZero()
}

var errSyntax = errors.New("invalid JSON")

// unmarshal is json.Unmarshal. It does not ignore the case of names. A json.RawMessage is a part of text.
func unmarshal(text []byte, to any) error {
	if !json.Valid(text) {
		return errSyntax
	}
	return decode(bytes.TrimSpace(text), reflect.ValueOf(to).Elem())
}

// decode decodes valid JSON without space around it into v, which is addressable.
func decode(text []byte, v reflect.Value) error {
	p := v.Addr()
	_, ownJSON := p.Interface().(json.Unmarshaler)
	_, ownText := p.Interface().(encoding.TextUnmarshaler)
	switch kind := v.Kind(); {
	case v.Type() == rawType:
		v.SetBytes(slices.Clip(text))
		return nil
	case ownJSON || ownText || string(text) == "null":
	case kind == reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return decode(text, v.Elem())
	case kind == reflect.Struct && text[0] == '{':
		return members(text, func(name, value []byte) error { return decodeMember(v, name, value) })
	case kind == reflect.Slice && text[0] == '[':
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		return members(text, func(_, value []byte) error {
			v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
			return decode(value, v.Index(v.Len()-1))
		})
	case kind == reflect.String && text[0] == '"' && isPlain(text[1:len(text)-1]):
		v.SetString(string(text[1 : len(text)-1]))
		return nil
	}
	return json.Unmarshal(text, p.Interface())
}

// decodeMember decodes the member of an object into the field of that name, if there is one.
func decodeMember(v reflect.Value, name, value []byte) error {
	to := find(v, string(name))
	if !to.IsValid() {
		return nil
	}
	if err := decode(value, to); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func find(v reflect.Value, name string) reflect.Value {
	for i, f := range fields(v.Type()) {
		switch {
		case f.skip:
		case f.inline:
			if inner := find(v.Field(i), name); inner.IsValid() {
				return inner
			}
		case f.name == name:
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

// members calls f for each member of an object, or for each element of an array, of valid JSON. A name with an escape
// belongs to no field.
func members(text []byte, f func(name, value []byte) error) error {
	for rest := skipSpace(text[1:]); rest[0] != '}' && rest[0] != ']'; {
		var name []byte
		if text[0] == '{' {
			n := valueLen(rest)
			name, rest = rest[1:n-1], skipSpace(skipSpace(rest[n:])[1:])
		}
		n := valueLen(rest)
		if err := f(name, rest[:n]); err != nil {
			return err
		}
		if rest = skipSpace(rest[n:]); rest[0] == ',' {
			rest = skipSpace(rest[1:])
		}
	}
	return nil
}

func skipSpace(b []byte) []byte {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	return b
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// valueLen returns the length of the value at the start of valid JSON.
func valueLen(b []byte) int {
	depth, text := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			if text = !text; !text && depth == 0 {
				return i + 1
			}
		case text:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1
			}
			if depth < 0 {
				return i // the end of a number or a word, and of the object or array around it
			}
		case depth == 0 && (c == ',' || isSpace(c)):
			return i
		}
	}
	return len(b)
}
