package mcpinstall

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"demesne/cmd/internal/session/egress"
	"demesne/runner/client"
)

// errTable says why a file is left alone: nothing here can tell where that entry ends.
var errTable = errors.New("has mcp_servers in a form that nothing can be added to, or a server of that name: change it by hand")

// codexTOML lets calls last: what is there by default ends them after some minutes.
func codexTOML(program string) string {
	return "[mcp_servers." + Server + "]\ncommand = " + quoted(program) + "\nargs = [\"mcp\"]\nstartup_timeout_sec = 30\ntool_timeout_sec = 172800\n"
}

// checkTOML has demesne-egress read text.
func checkTOML(text string) error {
	path, err := client.FindProgram(egress.Program)
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

// inTOML adds a table at the end, which is right wherever the last one ended.
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

// taken says whether a further table of ours could be a second one: whether a line begins
// with mcp_servers as a value, or with our name as a key or behind mcp_servers. It may say
// so of text in a string that looks like it, and nothing is changed then.
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
		after, ours := strings.CutPrefix(line, Server)
		if ours && after != "" && strings.ContainsAny(after[:1], ".=]") {
			return true
		}
	}
	return false
}
