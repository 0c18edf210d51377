package mcpinstall

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// errNotJSON is the reason for leaving a file unchanged.
var errNotJSON = errors.New("not plain JSON (it may have comments): add the entry by hand")

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func plainJSON(program string) string {
	return `{"command": ` + quoted(program) + `, "args": ["mcp"]}`
}

func stdioJSON(program string) string {
	return `{"type": "stdio", "command": ` + quoted(program) + `, "args": ["mcp"]}`
}

func opencodeJSON(program string) string {
	return `{"type": "local", "command": [` + quoted(program) + `, "mcp"], "enabled": true}`
}

// inJSON returns a function that adds an entry to the object under key. Nothing else in the text changes; an
// existing entry is replaced.
func inJSON(key string) func(text, entry string) (string, error) {
	return func(text, entry string) (string, error) {
		if strings.TrimSpace(text) == "" {
			text = "{}\n"
		}
		if err := whole(text); err != nil {
			return "", err
		}
		top, err := membersAt(text, 0)
		if err != nil {
			return "", err
		}
		changed := ""
		switch at, there := top.values[key]; {
		case !there:
			changed = top.insert(text, key, "{\n    "+quoted(server)+": "+entry+"\n  }", "  ")
		default:
			servers, err := membersAt(text, at.from)
			if err != nil {
				return "", fmt.Errorf("%q: %w", key, err)
			}
			if old, there := servers.values[server]; there {
				if sameJSON(text[old.from:old.to], entry) {
					return text, nil
				}
				changed = text[:old.from] + entry + text[old.to:]
			} else {
				changed = servers.insert(text, server, entry, "    ")
			}
		}
		return changed, onlyAdded(text, changed, key, entry)
	}
}

// whole returns an error with the line where text stops being one JSON value.
func whole(text string) error {
	var wrong *json.SyntaxError
	if err := json.Unmarshal([]byte(text), new(any)); errors.As(err, &wrong) {
		return &lineError{errNotJSON, 1 + strings.Count(text[:min(int(wrong.Offset), len(text))], "\n")}
	}
	return nil
}

type span struct{ from, to int }

// members is an object in a text: its position, and those of its values.
type members struct {
	open   int // offset after its brace
	values map[string]span
}

// membersAt parses the object that begins at from.
func membersAt(text string, from int) (m members, err error) {
	d := json.NewDecoder(strings.NewReader(text[from:]))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return m, errNotJSON
	}
	m = members{from + int(d.InputOffset()), map[string]span{}}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return m, errNotJSON
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return m, errNotJSON
		}
		to := from + int(d.InputOffset())
		name, _ := key.(string)
		if _, twice := m.values[name]; twice {
			return m, fmt.Errorf("%q occurs twice", name)
		}
		m.values[name] = span{to - len(v), to}
	}
	return m, nil
}

// insert adds a member in front of the others.
func (m members) insert(text, key, value, indent string) string {
	added := "\n" + indent + quoted(key) + ": " + value
	if len(m.values) > 0 {
		added += ","
	} else {
		added += "\n" + indent[2:]
	}
	rest := text[m.open:]
	if len(m.values) == 0 {
		rest = strings.TrimLeft(rest, " \t\r\n")
	}
	return text[:m.open] + added + rest
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

// onlyAdded returns an error unless b is a with the entry and nothing else.
func onlyAdded(a, b, key, entry string) error {
	var before, after map[string]any
	if json.Unmarshal([]byte(a), &before) != nil || json.Unmarshal([]byte(b), &after) != nil {
		return errNotJSON
	}
	servers, _ := before[key].(map[string]any)
	if servers == nil {
		servers = map[string]any{}
		before[key] = servers
	}
	var want any
	if err := json.Unmarshal([]byte(entry), &want); err != nil {
		return err
	}
	servers[server] = want
	if !reflect.DeepEqual(before, after) {
		return errNotJSON
	}
	return nil
}
