package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// Wrap changes the entry of another server in the client's file: program then starts that server in a sandbox, with
// flags of demesne run. Everything else in the file is kept. The variables of the entry are passed into the sandbox,
// but not those that a --secret among the flags replaces.
func (c Client) Wrap(p Place, program, name string, flags []string) (Did, error) {
	return c.change(p, func(old string) (string, error) {
		if c.toml {
			return wrapTOML(old, program, name, flags)
		}
		return c.wrapJSON(old, program, name, flags)
	})
}

var (
	errNoServer = errors.New("no such server")
	errWrapped  = errors.New("it runs in a sandbox already")
	errRemote   = errors.New("it has no command: a remote server does not run on this machine")
)

// wrapped returns the arguments with which program starts argv in a sandbox.
func wrapped(program string, flags, variables, argv []string) ([]string, error) {
	if len(argv) == 0 || argv[0] == "" {
		return nil, errRemote
	}
	if filepath.Base(argv[0]) == filepath.Base(program) && slices.Contains(argv, "wrap") {
		return nil, errWrapped
	}
	args := append([]string{"mcp", "wrap"}, flags...)
	slices.Sort(variables)
	for _, v := range variables {
		if !isSecret(flags, v) {
			args = append(args, "--env", v)
		}
	}
	return append(append(args, "--"), argv...), nil
}

// isSecret reports whether flags pass the variable as a secret.
func isSecret(flags []string, variable string) bool {
	for i, f := range flags {
		value, joined := strings.CutPrefix(f, "--secret=")
		if !joined && f == "--secret" && i+1 < len(flags) {
			value, joined = flags[i+1], true
		}
		source := strings.TrimPrefix(value[strings.IndexByte(value, '=')+1:], "env:")
		if name, _, _ := strings.Cut(value, "="); joined && (name == variable || source == variable) {
			return true
		}
	}
	return false
}

// wrapJSON replaces the values of command and args in one entry.
func (c Client) wrapJSON(text, program, name string, flags []string) (string, error) {
	if strings.TrimSpace(text) == "" {
		text = "{}"
	}
	if err := whole(text); err != nil {
		return "", err
	}
	at, err := entryAt(text, c.key, name)
	if err != nil {
		return "", err
	}
	entry, err := membersAt(text, at.from)
	if err != nil {
		return "", fmt.Errorf("server %q: %w", name, err)
	}
	was := map[string]any{}
	if err := json.Unmarshal([]byte(text[at.from:at.to]), &was); err != nil {
		return "", fmt.Errorf("server %q: %w", name, err)
	}
	variables := slices.Concat(keys(was["env"]), keys(was["environment"]))
	args, err := wrapped(program, flags, variables, argvOf(was))
	if err != nil {
		return "", fmt.Errorf("server %q: %w", name, err)
	}
	now := map[string]any{"command": program, "args": args}
	if c.list {
		now = map[string]any{"command": append([]string{program}, args...)}
	}
	changed := setMembers(text, entry, now)
	return changed, onlyMembers(text, changed, c.key, name, now)
}

// entryAt finds the entry of a server.
func entryAt(text, key, name string) (at span, err error) {
	top, err := membersAt(text, 0)
	if err != nil {
		return at, err
	}
	list, there := top.values[key]
	if !there {
		return at, fmt.Errorf("server %q: %w", name, errNoServer)
	}
	servers, err := membersAt(text, list.from)
	if err != nil {
		return at, fmt.Errorf("%q: %w", key, err)
	}
	if at, there = servers.values[name]; !there {
		return at, fmt.Errorf("server %q: %w", name, errNoServer)
	}
	return at, nil
}

func keys(v any) (names []string) {
	m, _ := v.(map[string]any)
	for k := range m {
		names = append(names, k)
	}
	return names
}

// argvOf returns the command of an entry with its arguments.
func argvOf(entry map[string]any) (argv []string) {
	add := func(v any) {
		switch v := v.(type) {
		case string:
			argv = append(argv, v)
		case []any:
			for _, s := range v {
				argv = append(argv, fmt.Sprint(s))
			}
		}
	}
	add(entry["command"])
	add(entry["args"])
	return argv
}

// setMembers replaces the values of members in a text, and inserts the others.
func setMembers(text string, in members, values map[string]any) string {
	names := keys(values)
	slices.SortFunc(names, func(a, b string) int { return in.values[b].from - in.values[a].from }) // the last one first
	for _, name := range names {
		value, _ := json.Marshal(values[name]) // strings: never fails
		if at, there := in.values[name]; there {
			text = text[:at.from] + string(value) + text[at.to:]
		} else {
			text = in.insert(text, name, string(value), "      ")
		}
	}
	return text
}

// onlyMembers returns an error unless b is a with these members of the entry and no other change.
func onlyMembers(a, b, key, name string, values map[string]any) error {
	var before, after map[string]any
	if json.Unmarshal([]byte(a), &before) != nil || json.Unmarshal([]byte(b), &after) != nil {
		return errNotJSON
	}
	text, err := json.Marshal(values)
	if err != nil {
		return err
	}
	var plain map[string]any
	if err := json.Unmarshal(text, &plain); err != nil {
		return err
	}
	entry := before[key].(map[string]any)[name].(map[string]any) // entryAt found it
	for k, v := range plain {
		entry[k] = v
	}
	if !reflect.DeepEqual(before, after) {
		return errNotJSON
	}
	return nil
}

// errLines is the reason for leaving a file unchanged: this package does not parse TOML.
var errLines = errors.New("command and args are not on a line each below [mcp_servers.NAME]: edit it by hand")

// wrapTOML replaces the lines of command and args below the server's table. Arrays that go over several lines, inline
// tables and dotted keys are left alone.
func wrapTOML(text, program, name string, flags []string) (string, error) {
	lines := strings.SplitAfter(text, "\n")
	from := slices.IndexFunc(lines, func(l string) bool { return isTable(l, "mcp_servers."+name) })
	if from < 0 {
		return "", fmt.Errorf("server %q: %w", name, errNoServer)
	}
	command, args := -1, -1
	var argv []string
	for i := from + 1; i < len(lines) && !strings.HasPrefix(strings.TrimSpace(lines[i]), "["); i++ {
		key, value, _ := strings.Cut(lines[i], "=")
		var err error
		switch strings.TrimSpace(key) {
		case "command":
			command = i
			err = json.Unmarshal([]byte(value), new(string))
			argv = append(argvOf(map[string]any{"command": unquoted(value)}), argv...)
		case "args":
			var list []string
			args = i
			err = json.Unmarshal([]byte(value), &list)
			argv = append(argv, list...)
		}
		if err != nil {
			return "", fmt.Errorf("server %q: %w", name, errLines)
		}
	}
	if command < 0 {
		return "", fmt.Errorf("server %q: %w", name, errLines)
	}
	now, err := wrapped(program, flags, tomlVariables(lines, name), argv)
	if err != nil {
		return "", fmt.Errorf("server %q: %w", name, err)
	}
	list, _ := json.Marshal(now) // strings: never fails
	if args >= 0 {
		lines[args] = ""
	}
	lines[command] = "command = " + quoted(program) + "\nargs = " + string(list) + "\n"
	return strings.Join(lines, ""), nil
}

func unquoted(value string) (s string) {
	json.Unmarshal([]byte(value), &s)
	return s
}

// isTable reports whether a line begins the table of that name.
func isTable(line, name string) bool {
	plain := strings.NewReplacer(" ", "", "\t", "", `"`, "").Replace(strings.TrimSpace(line))
	plain, _, _ = strings.Cut(plain, "#")
	return plain == "["+name+"]"
}

// tomlVariables returns the names below [mcp_servers.NAME.env].
func tomlVariables(lines []string, name string) (names []string) {
	from := slices.IndexFunc(lines, func(l string) bool { return isTable(l, "mcp_servers."+name+".env") })
	for i := from + 1; from >= 0 && i < len(lines) && !strings.HasPrefix(strings.TrimSpace(lines[i]), "["); i++ {
		if key, _, found := strings.Cut(lines[i], "="); found {
			names = append(names, strings.Trim(strings.TrimSpace(key), `"`))
		}
	}
	return names
}
