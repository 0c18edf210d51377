package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
)

// A Gate is asked about each request to a route before it is forwarded.
type Gate interface {
	// Ask returns the number of a request that may be forwarded, or why it may not. It may block. A request with a number
	// has one record of usage with it, or is dropped.
	Ask(context.Context, Asked) (number int64, err error)
	// Drop says that the request was not forwarded.
	Drop(number int64)
}

// Asked has the fields of a request to a language model that determine its cost.
type Asked struct {
	Model     string
	Sent      int64  // bytes of the body
	MaxOutput int64  // the most tokens that it asks for; 0: it does not say
	Odd       string // why its cost cannot be known; empty: it can
}

// generates reports whether a request may make the server generate something, which costs.
func generates(method, path string) bool {
	return method != http.MethodGet && method != http.MethodHead && !countsOnly(path)
}

// ask reads what a request says about its cost. body is nil if it was not read.
func (f *format) ask(h http.Header, path string, body []byte) Asked {
	a := Asked{Sent: int64(len(body))}
	var fields fields
	var err error
	switch encoding := h.Get("Content-Encoding"); {
	case body == nil:
		err = errors.New("its body was not read")
	case encoding != "" && !strings.EqualFold(encoding, "identity"):
		err = fmt.Errorf("its body is compressed (%.20q)", encoding)
	default:
		fields, err = parseFields(body)
	}
	if err != nil {
		a.Odd = err.Error()
		return a
	}
	a.Model = clip(fields.text("model"))
	a.MaxOutput = max(fields.number("max_tokens"), fields.number("max_output_tokens"), fields.number("max_completion_tokens")) *
		max(1, fields.number("n"))
	if _, rest, ok := strings.Cut(path, "/models/"); ok { // GenerateContent
		model, _, _ := strings.Cut(rest, ":")
		a.Model = clip(model)
		inner := fields.object("generationConfig")
		a.MaxOutput = inner.number("maxOutputTokens") * max(1, inner.number("candidateCount"))
		a.Odd = inner.odd()
	}
	if a.MaxOutput = min(a.MaxOutput, mostCount); a.Odd == "" {
		a.Odd = fields.odd()
	}
	return a
}

func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), mostName)], "") }

// fields are the members of a JSON object. Their names are in lower case and without underscores: some servers take either
// spelling, so a second one must not hide from a gate.
type fields map[string]json.RawMessage

// parseFields parses an object. It refuses one in which a name occurs twice: the server could read the other one.
func parseFields(text []byte) (fields, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("its body is not a JSON object")
	}
	all := fields{}
	for d.More() {
		var value json.RawMessage
		t, err := d.Token()
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			return nil, errors.New("its body is not a JSON object")
		}
		name := plainName(t.(string))
		if all[name] != nil {
			return nil, fmt.Errorf("its body has the field %.40q twice", t)
		}
		all[name] = value
	}
	if _, err := d.Token(); err != nil || len(bytes.TrimSpace(text[d.InputOffset():])) > 0 {
		return nil, errors.New("its body is not a JSON object")
	}
	return all, nil
}

func plainName(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }

// given reports whether a field has a value.
func (f fields) given(name string) bool {
	v := string(f[plainName(name)])
	return v != "" && v != "null" && v != "false" && v != "[]" && v != "{}" && v != `""`
}

func (f fields) text(name string) (s string) {
	json.Unmarshal(f[plainName(name)], &s)
	return s
}

func (f fields) object(name string) fields {
	inner, _ := parseFields(f[plainName(name)])
	return inner
}

func (f fields) number(name string) int64 {
	var n float64
	if json.Unmarshal(f[plainName(name)], &n) != nil || !(n > 0) {
		return 0
	}
	return int64(math.Ceil(min(n, mostCount)))
}

// unknowable are fields that hide a request's cost: its answer does not show it, or it is not a sum of tokens. They ask for
// work after the answer, input from elsewhere, other models or other prices.
var unknowable = []string{
	"background", "previous_response_id", "conversation", "prompt", "cached_content", "container", // Responses, GenerateContent, Messages
	"web_search_options", "audio", "models", "fallbacks", "plugins", // Chat Completions and servers with that interface
}

// usual are the values of fields that select a price: any other value may be dearer.
var usual = map[string][]string{
	"service_tier": {"auto", "default", "standard", "standard_only", "flex"},
	"speed":        {"standard"},
}

// paidTools are parts of tools' names. The provider runs these tools and does not charge for them by tokens. A search of
// the web is counted.
var paidTools = []string{"code_execution", "code_interpreter", "image_generation", "file_search", "container", "fileSearch"}

// odd returns why the cost of a request cannot be known.
func (f fields) odd() string {
	for _, name := range unknowable {
		if f.given(name) {
			return fmt.Sprintf("its field %q makes its cost unknown", name)
		}
	}
	for name, values := range usual {
		if f.given(name) && !slices.Contains(values, f.text(name)) {
			return fmt.Sprintf("its field %q may change its price", name)
		}
	}
	for _, name := range []string{"modalities", "responseModalities"} {
		var kinds []string
		if f.given(name) && (json.Unmarshal(f[plainName(name)], &kinds) != nil || slices.ContainsFunc(kinds, func(s string) bool { return !strings.EqualFold(s, "text") })) {
			return fmt.Sprintf("its field %q asks for output with another price than text", name)
		}
	}
	return f.oddTools()
}

func (f fields) oddTools() string {
	if !f.given("tools") {
		return ""
	}
	var tools []json.RawMessage
	if json.Unmarshal(f["tools"], &tools) != nil {
		return "its tools are not a list"
	}
	for _, raw := range tools {
		tool, err := parseFields(raw)
		if err != nil {
			return "a tool is not an object"
		}
		kind, environment := tool.text("type"), tool.object("environment").text("type")
		for _, paid := range paidTools {
			if strings.Contains(kind, paid) || strings.Contains(environment, paid) || tool[plainName(paid)] != nil {
				return fmt.Sprintf("the provider charges for the tool %q", paid)
			}
		}
	}
	return ""
}

// withUsage changes the body of a Chat Completions request so that its stream ends with its usage. It returns any other body as
// it is.
func withUsage(body []byte) []byte {
	var all map[string]json.RawMessage
	if json.Unmarshal(body, &all) != nil || string(all["stream"]) != "true" {
		return body
	}
	options := map[string]json.RawMessage{}
	if json.Unmarshal(all["stream_options"], &options) != nil || options == nil {
		options = map[string]json.RawMessage{}
	}
	if string(options["include_usage"]) == "true" {
		return body
	}
	options["include_usage"] = json.RawMessage("true")
	text, err := json.Marshal(options)
	if err != nil {
		return body
	}
	all["stream_options"] = text
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(all) != nil {
		return body
	}
	return b.Bytes()
}
