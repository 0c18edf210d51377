package clients

import (
	"errors"
	"regexp"
	"strings"
)

// errTable says why a file is left alone: without a parser of TOML there is no telling
// where that entry ends.
var errTable = errors.New("has mcp_servers in a form that nothing can be added to, or a server of that name: change it by hand")

// taken finds what a further table [mcp_servers.demesne] would be a second one of.
var taken = regexp.MustCompile(`(?m)^\s*mcp_servers\s*=|mcp_servers["']?\s*\.\s*["']?` + Server + `\b|^\s*["']?` + Server + `["']?\s*[.=]`)

// codexTOML lets calls last: what is there by default ends them after some minutes.
func codexTOML(program string) string {
	return "[mcp_servers." + Server + "]\ncommand = " + quoted(program) + "\nargs = [\"mcp\"]\nstartup_timeout_sec = 30\ntool_timeout_sec = 172800\n"
}

// inTOML adds a table at the end, which is right wherever the last one ended.
func inTOML(text, entry string) (string, error) {
	switch {
	case strings.Contains(text, entry):
		return text, nil
	case taken.MatchString(text):
		return "", errTable
	case strings.TrimSpace(text) == "":
		return entry, nil
	}
	return strings.TrimRight(text, "\n") + "\n\n" + entry, nil
}
