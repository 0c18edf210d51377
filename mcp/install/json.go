package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"demesne/internal/jsonc"
)

// errNotJSON is the reason for leaving a file unchanged.
var errNotJSON = errors.New("not plain JSON (it may have comments): add the entry by hand")

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// entry returns a new entry.
func (c Client) entry(program string, s Settings) string {
	args, _ := json.Marshal(s.arguments(nil)) // strings: never fails
	text := `"command": ` + quoted(program) + `, "args": ` + string(args)
	if c.list {
		args, _ = json.Marshal(append([]string{program}, s.arguments(nil)...))
		text = `"command": ` + strings.ReplaceAll(string(args), `","`, `", "`)
	}
	if len(s.Env) > 0 {
		env, _ := json.Marshal(variables(s.Env))
		text += `, ` + quoted(c.envKey()) + `: ` + string(env)
	}
	return "{" + c.head + text + c.tail + "}"
}

// envKey returns the name of an entry's member with the variables.
func (c Client) envKey() string {
	if c.list {
		return "environment"
	}
	return "env"
}

func variables(env []string) map[string]any {
	m := map[string]any{}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		m[name] = value
	}
	return m
}

// addJSON adds the entry in front of the others, or changes members of the one that is there. Nothing else in the text
// changes.
func (c Client) addJSON(text, program string, s Settings) (string, error) {
	if strings.TrimSpace(text) == "" {
		text = "{}\n"
	}
	plain, err := c.plain(text)
	if err != nil {
		return "", err
	}
	at, err := entryAt(plain, c.key, server)
	if err == nil {
		return c.mergeJSON(text, plain, at, program, s)
	}
	if !errors.Is(err, errNoServer) {
		return "", err
	}
	top, err := membersAt(plain, 0)
	if err != nil {
		return "", err
	}
	entry, changed := c.entry(program, s), ""
	if at, there := top.values[c.key]; there {
		servers, err := membersAt(plain, at.from)
		if err != nil {
			return "", err
		}
		changed = servers.insert(text, server, entry, "    ")
	} else {
		changed = top.insert(text, c.key, "{\n    "+quoted(server)+": "+entry+"\n  }", "  ")
	}
	after, err := c.plain(changed)
	if err != nil {
		return "", err
	}
	return changed, onlyAdded(plain, after, c.key, entry)
}

// mergeJSON changes the program of the entry at a place, and what s names. The entry keeps all else.
func (c Client) mergeJSON(text, plain string, at span, program string, s Settings) (string, error) {
	entry, err := membersAt(plain, at.from)
	if err != nil {
		return "", fmt.Errorf("server %q: %w", server, err)
	}
	was := map[string]any{}
	if err := json.Unmarshal([]byte(plain[at.from:at.to]), &was); err != nil {
		return "", fmt.Errorf("server %q: %w", server, err)
	}
	argv := argvOf(was)
	if len(argv) == 0 {
		return "", fmt.Errorf("server %q: %w", server, errRemote)
	}
	args := s.arguments(argv)
	want := map[string]any{"command": program, "args": args}
	if c.list {
		want = map[string]any{"command": append([]string{program}, args...)}
	}
	if len(s.Env) > 0 {
		env, _ := was[c.envKey()].(map[string]any)
		env = maps.Clone(env)
		if env == nil {
			env = map[string]any{}
		}
		maps.Copy(env, variables(s.Env))
		want[c.envKey()] = env
	}
	for name, value := range want {
		if b, err := json.Marshal(value); err == nil && sameJSON(string(b), plain[entry.values[name].from:entry.values[name].to]) {
			delete(want, name)
		}
	}
	if len(want) == 0 {
		return text, nil
	}
	changed := setMembers(text, entry, want)
	after, err := c.plain(changed)
	if err != nil {
		return "", err
	}
	return changed, onlyMembers(plain, after, c.key, server, want)
}

// removeJSON removes the entry with one of the commas around it.
func (c Client) removeJSON(text string) (string, error) {
	if strings.TrimSpace(text) == "" {
		return text, nil
	}
	plain, err := c.plain(text)
	if err != nil {
		return "", err
	}
	at, err := entryAt(plain, c.key, server)
	if errors.Is(err, errNoServer) {
		return text, nil
	}
	if err != nil {
		return "", err
	}
	name := strings.TrimRight(plain[:at.from], ": \t\r\n")
	from, to := strings.LastIndexByte(name[:len(name)-1], '"'), at.to
	before, behind := strings.TrimRight(plain[:from], " \t\r\n"), strings.TrimLeft(plain[to:], " \t\r\n")
	switch {
	case strings.HasPrefix(behind, ","):
		from, to = len(strings.TrimRight(text[:from], " \t\r\n")), len(plain)-len(behind)+1
	case strings.HasSuffix(before, ","):
		from = len(before) - 1
	default:
		from = len(strings.TrimRight(text[:from], " \t\r\n"))
	}
	changed := text[:from] + text[to:]
	after, err := c.plain(changed)
	if err != nil {
		return "", err
	}
	return changed, onlyRemoved(plain, after, c.key)
}

// onlyRemoved returns an error unless b is a without the entry.
func onlyRemoved(a, b, key string) error {
	var before, after map[string]any
	if json.Unmarshal([]byte(a), &before) != nil || json.Unmarshal([]byte(b), &after) != nil {
		return errNotJSON
	}
	servers, _ := before[key].(map[string]any)
	delete(servers, server)
	if !reflect.DeepEqual(before, after) {
		return errNotJSON
	}
	return nil
}

// plain returns the text as JSON, with spaces in place of comments and trailing commas. Clients without comments refuse
// both: for them it returns the text itself. It fails unless that is one value.
func (c Client) plain(text string) (string, error) {
	if !c.comments {
		return text, whole(text)
	}
	b, err := jsonc.Standardize([]byte(text))
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNotJSON, err)
	}
	return string(b), nil
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
