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
	changed, err := c.edit(text, server, func(was map[string]any) (map[string]any, error) { return c.merged(was, program, s) })
	if !errors.Is(err, errNoServer) {
		return changed, err
	}
	plain, err := c.plain(text)
	if err != nil {
		return "", err
	}
	top, err := membersAt(plain, 0)
	if err != nil {
		return "", err
	}
	entry := c.entry(program, s)
	if at, there := top.values[c.key]; there {
		servers, err := membersAt(plain, at.from)
		if err != nil {
			return "", err
		}
		changed = servers.insert(text, server, entry, "    ")
	} else {
		changed = top.insert(text, c.key, "{\n    "+quoted(server)+": "+entry+"\n  }", "  ")
	}
	return changed, c.only(text, changed, func(all map[string]any) {
		if all[c.key] == nil {
			all[c.key] = map[string]any{}
		}
		var want any
		json.Unmarshal([]byte(entry), &want) // this package made it
		all[c.key].(map[string]any)[server] = want
	})
}

// merged returns the program of an entry, and what s names.
func (c Client) merged(was map[string]any, program string, s Settings) (map[string]any, error) {
	argv := argvOf(was)
	if len(argv) == 0 {
		return nil, errRemote
	}
	want := c.command(program, s.arguments(argv))
	if len(s.Env) > 0 {
		env, _ := was[c.envKey()].(map[string]any)
		env = maps.Clone(env)
		if env == nil {
			env = map[string]any{}
		}
		maps.Copy(env, variables(s.Env))
		want[c.envKey()] = env
	}
	return want, nil
}

// command returns the members of an entry that start a program.
func (c Client) command(program string, args []string) map[string]any {
	if c.list {
		return map[string]any{"command": append([]string{program}, args...)}
	}
	return map[string]any{"command": program, "args": args}
}

// edit gives members of a server's entry the values that f returns for the entry as it is. The entry keeps all else.
func (c Client) edit(text, name string, f func(was map[string]any) (map[string]any, error)) (string, error) {
	plain, err := c.plain(text)
	if err != nil {
		return "", err
	}
	at, err := entryAt(plain, c.key, name)
	if err != nil {
		return "", err
	}
	entry, err := membersAt(plain, at.from)
	was := map[string]any{}
	if err == nil {
		err = json.Unmarshal([]byte(plain[at.from:at.to]), &was)
	}
	var want map[string]any
	if err == nil {
		want, err = f(was)
	}
	if err != nil {
		return "", fmt.Errorf("server %q: %w", name, err)
	}
	for name, value := range want {
		if b, err := json.Marshal(value); err == nil && sameJSON(string(b), plain[entry.values[name].from:entry.values[name].to]) {
			delete(want, name)
		}
	}
	changed := setMembers(text, entry, want)
	return changed, c.only(text, changed, func(all map[string]any) {
		maps.Copy(all[c.key].(map[string]any)[name].(map[string]any), want) // entryAt found it
	})
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
	return changed, c.only(text, changed, func(all map[string]any) {
		delete(all[c.key].(map[string]any), server)
	})
}

// only returns an error unless a text was changed as change changes its values, and in nothing else.
func (c Client) only(text, changed string, change func(all map[string]any)) error {
	plain, err1 := c.plain(text)
	after, err2 := c.plain(changed)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	top := map[string]any{}
	if json.Unmarshal([]byte(plain), &top) != nil {
		return errNotJSON
	}
	change(top)
	b, err := json.Marshal(top)
	if err != nil {
		return err
	}
	if !sameJSON(string(b), after) {
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

// members is an object in a text: its position, and its values' positions.
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
