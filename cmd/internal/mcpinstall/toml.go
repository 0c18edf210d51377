package mcpinstall

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"demesne/cmd/internal/session"
	"demesne/runner/client"
)

// errTable is the reason for leaving a file unchanged: without a TOML editor the end of such an entry is
// unknown.
var errTable = errors.New("has mcp_servers as an inline table, or an entry of that name: edit it by hand")

// codexTOML returns codex's entry. It raises the timeout of calls, whose default is some minutes.
func codexTOML(program string) string {
	return "[mcp_servers." + server + "]\ncommand = " + quoted(program) + "\nargs = [\"mcp\"]\nstartup_timeout_sec = 30\ntool_timeout_sec = 172800\n"
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

// inTOML appends the table at the end of text, where a new table is always valid.
func inTOML(text, entry string) (string, error) {
	switch {
	case strings.Contains(text, entry):
		return text, nil
	case taken(text):
		return "", errTable
	case strings.TrimSpace(text) == "":
		return entry, nil
	}
	return strings.TrimRight(text, "\n") + "\n\n" + entry, nil
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
