package headless

import (
	"fmt"
	"os"
	"path/filepath"

	"demesne/agents"
	"demesne/agents/tree"
	"demesne/internal/cmdline"
	"demesne/mcp/hosttools"
)

// varAllowlist names the file that says which tools agents may use.
const varAllowlist = "DEMESNE_MCP_ALLOWLIST"

// readHostTools reads the configurations of the user's own agents, and the allowlist. What cannot be read only disables host
// tools, with a warning.
func readHostTools(getenv func(string) string, catalog *agents.Catalog, warn func(string)) (h tree.HostTools) {
	path := getenv(varAllowlist)
	if home, err := os.UserHomeDir(); path == "" && err == nil {
		path = filepath.Join(home, ".config/demesne/mcp-allowlist.json")
	}
	allowed, err := hosttools.ReadAllowlist(path)
	if err != nil {
		warn(fmt.Sprintf("no host tools: %v", err))
		return h
	}
	var configs []hosttools.Config
	for _, t := range catalog.Tools() {
		configs = append(configs, hosttools.Config{Path: t.File, Format: hosttools.Format(t.Format)})
	}
	servers, warnings := hosttools.Read(configs...)
	for _, w := range warnings {
		warn("host tools: " + w)
	}
	return tree.HostTools{Servers: servers, Allowed: allowed, Version: cmdline.Version}
}
