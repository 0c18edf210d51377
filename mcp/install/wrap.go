package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
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
	return c.edit(text, name, func(was map[string]any) (map[string]any, error) {
		args, err := wrapped(program, flags, slices.Concat(keys(was["env"]), keys(was["environment"])), argvOf(was))
		return c.command(program, args), err
	})
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

// errLines is the reason for leaving a file unchanged: this package does not parse TOML.
var errLines = errors.New("command and args are not on a line each below [mcp_servers.NAME]: edit it by hand")

// wrapTOML replaces the lines of command and args below the server's table. Arrays that go over several lines, inline
// tables and dotted keys are left alone.
func wrapTOML(text, program, name string, flags []string) (string, error) {
	lines := strings.SplitAfter(text, "\n")
	t, err := readTable(lines, name)
	if err != nil {
		return "", fmt.Errorf("server %q: %w", name, err)
	}
	var variables []string
	from, to := tableTOML(lines, name+".env")
	for i := from + 1; i < to; i++ {
		if key, _, found := strings.Cut(lines[i], "="); found {
			variables = append(variables, strings.Trim(strings.TrimSpace(key), `"`))
		}
	}
	now, err := wrapped(program, flags, variables, t.argv)
	if err != nil {
		return "", fmt.Errorf("server %q: %w", name, err)
	}
	list, _ := json.Marshal(now) // strings: never fails
	t.set(lines, "command = "+quoted(program)+"\nargs = "+string(list)+"\n")
	return strings.Join(lines, ""), nil
}

// argvLines is the table of an entry: its lines with command and args; args is -1 without such a line.
type argvLines struct {
	command, args int
	argv          []string
}

// readTable reads the table of a server. It refuses values that are not on a line each.
func readTable(lines []string, name string) (t argvLines, err error) {
	from, to := tableTOML(lines, name)
	if from < 0 {
		return t, errNoServer
	}
	t.command, t.args = -1, -1
	program, list := []string{""}, []string(nil)
	for i := from + 1; i < to && err == nil; i++ {
		key, value, _ := strings.Cut(lines[i], "=")
		switch strings.TrimSpace(key) {
		case "command":
			t.command = i
			err = json.Unmarshal([]byte(value), &program[0])
		case "args":
			t.args = i
			err = json.Unmarshal([]byte(value), &list)
		}
	}
	if err != nil || t.command < 0 {
		return t, errLines
	}
	t.argv = append(program, list...)
	return t, nil
}

// set replaces the lines of command and args.
func (t argvLines) set(lines []string, text string) {
	if t.args >= 0 {
		lines[t.args] = ""
	}
	lines[t.command] = text
}

// isTable reports whether a line begins the table of that name.
func isTable(line, name string) bool {
	plain := strings.NewReplacer(" ", "", "\t", "", `"`, "").Replace(strings.TrimSpace(line))
	plain, _, _ = strings.Cut(plain, "#")
	return plain == "["+name+"]"
}
