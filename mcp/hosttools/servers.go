package hosttools

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"demesne/internal/lazy"
)

// Server is an MCP server that a client's configuration starts over stdio.
type Server struct {
	Name    string
	Command string
	Args    []string
	Env     []string // K=V, the whole environment
	Dir     string   // empty: the current one
}

// Format is the format of a client's configuration.
type Format string

// The formats. A JSON configuration has the servers under "mcpServers", a TOML one under "mcp_servers". A client with a
// JSON configuration passes its whole environment to a server, and one with a TOML configuration a few variables.
const (
	JSON Format = "json"
	TOML Format = "toml"
)

// Config is the configuration file of a client.
type Config struct {
	Path   string
	Format Format
}

// entry is a server in either format.
type entry struct {
	Type     string            `json:"type" toml:"type"`
	Command  string            `json:"command" toml:"command"`
	Args     []string          `json:"args" toml:"args"`
	Env      map[string]string `json:"env" toml:"env"`
	EnvVars  []string          `json:"-" toml:"env_vars"` // names that are passed on
	Dir      string            `json:"cwd" toml:"cwd"`
	URL      string            `json:"url" toml:"url"`
	Enabled  *bool             `json:"-" toml:"enabled"`
	Disabled bool              `json:"disabled" toml:"-"`
}

// own is demesne's own entry. An agent reaches demesne by another way.
const own = "demesne"

var validName = lazy.Regexp{Expr: `^[a-z][a-z0-9_-]{0,62}$`}

// maxConfig bounds a configuration file, in bytes.
const maxConfig = 32 << 20

// Read returns the servers of several configurations, by name. A later configuration wins. It skips servers that are
// not started over stdio, and warns about files and names that it cannot use. A file that does not exist is empty.
func Read(configs ...Config) (servers []Server, warnings []string) {
	byName := map[string]Server{}
	for _, c := range configs {
		entries, err := c.entries()
		if err != nil {
			warnings = append(warnings, err.Error())
		}
		for name, e := range entries {
			switch {
			case name == own || !e.stdio():
			case !validName.Get().MatchString(name):
				warnings = append(warnings, fmt.Sprintf("read %q: server %q: its name is not lower-case letters, digits, _ and -", c.Path, name))
			default:
				byName[name] = e.server(name, c.Format, os.Environ())
			}
		}
	}
	for _, s := range byName {
		servers = append(servers, s)
	}
	slices.SortFunc(servers, func(a, b Server) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(warnings)
	return servers, warnings
}

func (c Config) entries() (map[string]entry, error) {
	f, err := os.Open(c.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfig))
	if err != nil {
		return nil, err
	}
	var in struct {
		JSON map[string]entry `json:"mcpServers" toml:"-"`
		TOML map[string]entry `json:"-" toml:"mcp_servers"`
	}
	if c.Format == TOML {
		err = toml.Unmarshal(text, &in)
	} else {
		err = json.Unmarshal(text, &in)
	}
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", c.Path, err)
	}
	if c.Format == TOML {
		return in.TOML, nil
	}
	return in.JSON, nil
}

func (e entry) stdio() bool {
	enabled := !e.Disabled && (e.Enabled == nil || *e.Enabled)
	return enabled && e.Command != "" && e.URL == "" && (e.Type == "" || e.Type == "stdio")
}

// fewVariables are those that a client with a TOML configuration passes on.
var fewVariables = []string{"HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}

func (e entry) server(name string, format Format, environ []string) Server {
	s := Server{Name: name, Command: e.Command, Args: e.Args, Dir: e.Dir, Env: environ}
	if format == TOML {
		s.Env = slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
			name, _, _ := strings.Cut(kv, "=")
			return !slices.Contains(fewVariables, name) && !slices.Contains(e.EnvVars, name)
		})
	}
	s.Env = slices.Clip(s.Env)
	for k, v := range e.Env {
		s.Env = append(s.Env, k+"="+v)
	}
	return s
}
