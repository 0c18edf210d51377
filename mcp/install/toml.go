package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"demesne/runner/client"
	"demesne/session"
)

// errTable is the reason for leaving a file unchanged: without a TOML editor the end of such an entry is
// unknown.
var errTable = errors.New("has mcp_servers as an inline table, or an entry of that name: edit it by hand")

// entryTOML returns a new entry.
func entryTOML(program string, s Settings) string {
	text := "[mcp_servers." + server + "]\n" + programTOML(program, s.arguments(nil)) + "startup_timeout_sec = 30\ntool_timeout_sec = 172800\n"
	if len(s.Env) > 0 {
		text += "\n" + envTable + variablesTOML(s.Env)
	}
	return text
}

const envTable = "[mcp_servers." + server + ".env]\n"

func programTOML(program string, args []string) string {
	list, _ := json.Marshal(args) // strings: never fails
	return "command = " + quoted(program) + "\nargs = " + strings.ReplaceAll(string(list), `","`, `", "`) + "\n"
}

func variablesTOML(env []string) (text string) {
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		text += name + " = " + quoted(value) + "\n"
	}
	return text
}

// checkTOML checks the syntax of text with demesne-proxy.
func checkTOML(text string) error {
	path, err := client.FindProgram(session.EgressProgram)
	if err != nil {
		return err
	}
	cmd := exec.Command(path, "toml")
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.Output()
	number, what, _ := strings.Cut(strings.TrimSpace(string(out)), ": ")
	line, nerr := strconv.Atoi(number)
	switch {
	case err == nil:
		return nil
	case nerr == nil:
		return &lineError{fmt.Errorf("not TOML: %s", what), line}
	}
	return fmt.Errorf("read as TOML: %w", err)
}

// addTOML appends the table at the end of text, where a new table is always valid, or changes lines of the table that
// is there.
func addTOML(text, program string, s Settings) (string, error) {
	lines := strings.SplitAfter(text, "\n")
	if from, to := tableTOML(lines, server); from >= 0 {
		return mergeTOML(lines, from, to, program, s)
	}
	switch entry := entryTOML(program, s); {
	case taken(text):
		return "", errTable
	case strings.TrimSpace(text) == "":
		return entry, nil
	default:
		return strings.TrimRight(text, "\n") + "\n\n" + entry, nil
	}
}

// tableTOML returns the lines of the table of a server, or of one below it; from is -1 without such a table.
func tableTOML(lines []string, name string) (from, to int) {
	from = slices.IndexFunc(lines, func(l string) bool { return isTable(l, "mcp_servers."+name) })
	if from < 0 {
		return -1, -1
	}
	for to = from + 1; to < len(lines) && !strings.HasPrefix(strings.TrimSpace(lines[to]), "["); to++ {
	}
	return from, to
}

// mergeTOML changes the lines command and args of a table, and adds variables. The table keeps its other lines.
func mergeTOML(lines []string, from, to int, program string, s Settings) (string, error) {
	t, err := readTable(lines, server)
	inline := slices.ContainsFunc(lines[from:to], func(l string) bool {
		key, _, _ := strings.Cut(l, "=")
		return strings.TrimSpace(key) == "env"
	})
	if err != nil || inline && len(s.Env) > 0 {
		return "", errTable
	}
	if want := s.arguments(t.argv); t.argv[0] != program || !slices.Equal(want, t.argv[1:]) {
		t.set(lines, programTOML(program, want))
	}
	return withVariables(lines, s.Env), nil
}

// withVariables sets variables in the table of the entry's variables, adding that table if necessary.
func withVariables(lines, env []string) string {
	from, to := tableTOML(lines, server+".env")
	if len(env) > 0 && from < 0 {
		return strings.TrimRight(strings.Join(lines, ""), "\n") + "\n\n" + envTable + variablesTOML(env)
	}
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		at := from
		for i := from + 1; i < to; i++ {
			if key, _, found := strings.Cut(lines[i], "="); found && strings.Trim(strings.TrimSpace(key), `"`) == name {
				lines[i] = ""
				at = i
			}
		}
		lines[at] = strings.TrimSuffix(lines[at], "\n") + map[bool]string{true: "\n"}[at == from] + variablesTOML([]string{e})
	}
	return strings.Join(lines, "")
}

// removeTOML removes the table of the entry, and those below it.
func removeTOML(text string) (string, error) {
	lines := strings.SplitAfter(text, "\n")
	ours := false
	kept := slices.DeleteFunc(slices.Clone(lines), func(l string) bool {
		if strings.HasPrefix(strings.TrimSpace(l), "[") {
			name, _, _ := strings.Cut(strings.NewReplacer(" ", "", "\t", "", `"`, "").Replace(strings.TrimSpace(l)), "]")
			ours = name == "[mcp_servers."+server || strings.HasPrefix(name, "[mcp_servers."+server+".")
		}
		return ours
	})
	if changed := strings.Join(kept, ""); !taken(changed) {
		return changed, nil
	}
	return "", errTable
}

// taken reports whether appending the entry could define a table twice. That is so if a line assigns
// mcp_servers, or has the entry's name as a key or below mcp_servers. Text inside a string may look like that;
// then the file is left unchanged.
func taken(text string) bool {
	plain := strings.NewReplacer(" ", "", "\t", "", `"`, "", "'", "", "[", "")
	for line := range strings.Lines(text) {
		line = plain.Replace(line)
		rest, servers := strings.CutPrefix(line, "mcp_servers")
		if servers && strings.HasPrefix(rest, "=") {
			return true
		}
		if servers {
			line = strings.TrimPrefix(rest, ".")
		}
		after, ours := strings.CutPrefix(line, server)
		if ours && after != "" && strings.ContainsAny(after[:1], ".=]") {
			return true
		}
	}
	return false
}
