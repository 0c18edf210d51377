package terminal

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"

	"demesne/internal/fsutil"
)

// serversFile lists a project's MCP servers, each with a command that the agent's program starts.
const serversFile = ".mcp.json"

// maxServers bounds that file: a sandbox may have written it.
const maxServers = 1 << 20

// Missing is a program or a file of the home directory that an MCP server of the project needs and the sandbox lacks.
type Missing struct{ Server, Path string }

// MissingServers returns what the MCP servers of the project's .mcp.json need below home, apart from what seen shows the
// sandbox. look finds a program by its name.
func (p *Project) MissingServers(home string, seen []string, look func(name string) string) (all []Missing) {
	root, err := os.OpenRoot(p.Dir)
	if err != nil {
		return nil
	}
	defer root.Close()
	f, err := fsutil.OpenRegular(root, serversFile)
	if err != nil {
		return nil
	}
	defer f.Close()
	var file struct {
		MCPServers map[string]struct {
			Command string
			Args    []string
		}
	}
	if json.NewDecoder(io.LimitReader(f, maxServers)).Decode(&file) != nil {
		return nil
	}
	for name, s := range file.MCPServers {
		command := s.Command
		if command != "" && !filepath.IsAbs(command) {
			command = look(command)
		}
		for _, path := range append([]string{command}, s.Args...) {
			in := func(dir string) bool { return fsutil.Contains(dir, path) }
			if _, err := os.Lstat(path); filepath.IsAbs(path) && err == nil && in(home) && !slices.ContainsFunc(seen, in) {
				all = append(all, Missing{name, path})
			}
		}
	}
	slices.SortFunc(all, func(a, b Missing) int {
		return slices.Compare([]string{a.Server, a.Path}, []string{b.Server, b.Path})
	})
	return all
}
