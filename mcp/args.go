package mcp

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// args are the arguments of a call, as the client sent them. Clients and models write them
// differently, so only the required arguments are validated strictly.
type args map[string]any

func parseArgs(raw json.RawMessage) (args, error) {
	a := args{}
	if len(raw) == 0 || string(raw) == "null" {
		return a, nil
	}
	if err := json.Unmarshal(raw, &a); err != nil {
		return nil, fmt.Errorf("arguments must be an object")
	}
	return a, nil
}

// required returns a string argument, or an error if it is missing.
func (a args) required(name string) (string, error) {
	v, ok := a[name]
	if !ok || v == nil {
		return "", fmt.Errorf("required argument %q not found", name)
	}
	s, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("argument %q is not a string", name)
	}
	return s, nil
}

// text returns an optional string.
func (a args) text(name string) string {
	s, _ := a[name].(string)
	return s
}

func (a args) flag(name string) bool {
	switch v := a[name].(type) {
	case bool:
		return v
	case string:
		b, _ := strconv.ParseBool(strings.TrimSpace(v))
		return b
	case float64:
		return v != 0
	}
	return false
}

func (a args) number(name string) float64 {
	n, _ := a.numeric(name)
	return n
}

// numeric returns a number, and whether the argument is a number or absent.
func (a args) numeric(name string) (n float64, ok bool) {
	switch v := a[name].(type) {
	case nil:
		return 0, true
	case float64:
		return v, true
	case string:
		n, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		return n, err == nil
	}
	return 0, false
}

// texts returns an optional list of strings. It is strict: a file that was dropped because of its
// spelling would be noticed only later.
func (a args) texts(name string) ([]string, error) {
	v, ok := a[name]
	if !ok || v == nil {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("%s must be an array of strings", name)
	}
	out := make([]string, 0, len(list))
	for i, v := range list {
		s, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("%s[%d] is not a string", name, i)
		}
		out = append(out, s)
	}
	return out, nil
}

// table returns an optional object of strings. It converts numbers and booleans to strings.
func (a args) table(name string) (map[string]string, error) {
	v, ok := a[name]
	if !ok || v == nil {
		return nil, nil
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s must be an object of strings", name)
	}
	out := make(map[string]string, len(object))
	for k, v := range object {
		switch v := v.(type) {
		case string:
			out[k] = v
		case float64:
			out[k] = strconv.FormatFloat(v, 'f', -1, 64)
		case bool:
			out[k] = strconv.FormatBool(v)
		default:
			return nil, fmt.Errorf("%s.%s is not a string", name, k)
		}
	}
	return out, nil
}
