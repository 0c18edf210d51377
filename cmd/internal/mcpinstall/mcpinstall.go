// Package mcpinstall adds demesne's MCP server to the configuration files of MCP clients.
//
//	c, err := mcpinstall.Find("cursor")
//	did, err := c.Install(mcpinstall.Here(), "/usr/local/bin/demesne")
//
// The existing content of a file is kept byte for byte; the new entry is inserted into it. A file is parsed
// before it is changed, and the change is checked to be the entry and nothing else. Install refuses JSON with
// comments, TOML that already has such an entry, and files in neither format. It names the line of a syntax
// error. demesne-proxy parses TOML, because linking its parser would slow down every run.
//
// Install follows symbolic links; their target must exist. It replaces the file atomically and keeps the old
// one beside it.
package mcpinstall

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"demesne/internal/fsutil"
)

// errUnknown means that no client has the given name.
var errUnknown = errors.New("unknown")

// server is the name of demesne's entry.
const server = "demesne"

// suffix is the suffix of the backup file.
const suffix = ".before-demesne"

// Client is a program that starts MCP servers.
type Client struct {
	Name  string
	path  func(Place) string
	entry func(program string) string
	key   string // of the servers
	toml  bool   // the file is TOML, and not JSON
	list  bool   // an entry's command is a list with its arguments
}

// Place locates a user's files.
type Place struct {
	Home string
	Env  func(string) string
	TOML func(text string) error // checks TOML syntax; the error names the line
}

// Here returns the Place of the current user.
func Here() Place {
	home, _ := os.UserHomeDir()
	return Place{home, os.Getenv, checkTOML}
}

// lineError is an error at one line of a file.
type lineError struct {
	error
	line int
}

func (e *lineError) Unwrap() error { return e.error }

// under returns a path below the directory that variable names, or below the home directory.
func under(variable, otherwise, path string) func(Place) string {
	return func(p Place) string {
		if dir := p.Env(variable); variable != "" && filepath.IsAbs(dir) {
			return filepath.Join(dir, path)
		}
		return filepath.Join(p.Home, otherwise, path)
	}
}

// table has a row for each client. Rows differ in the file's location, the key that holds the servers, and the
// form of an entry.
var table = []Client{
	{"claude-code", under("CLAUDE_CONFIG_DIR", "", ".claude.json"), stdioJSON, "mcpServers", false, false},
	{"codex", under("CODEX_HOME", ".codex", "config.toml"), codexTOML, "mcp_servers", true, false},
	{"cursor", under("", ".cursor", "mcp.json"), plainJSON, "mcpServers", false, false},
	{"vscode", under("XDG_CONFIG_HOME", ".config", "Code/User/mcp.json"), stdioJSON, "servers", false, false},
	{"opencode", under("XDG_CONFIG_HOME", ".config", "opencode/opencode.json"), opencodeJSON, "mcp", false, true},
	{"claude-desktop", under("XDG_CONFIG_HOME", ".config", "Claude/claude_desktop_config.json"), plainJSON, "mcpServers", false, false},
}

// Names returns the names of the known clients.
func Names() (names []string) {
	for _, c := range table {
		names = append(names, c.Name)
	}
	return names
}

// Find returns the client with the given name.
func Find(name string) (Client, error) {
	for _, c := range table {
		if c.Name == name {
			return c, nil
		}
	}
	return Client{}, fmt.Errorf("client %q: %w (known: %s)", name, errUnknown, strings.Join(Names(), ", "))
}

// Text returns the content of a file that holds nothing but the entry.
func (c Client) Text(program string) (string, error) { return c.add("", c.entry(program)) }

// Did is the result of Install.
type Did struct {
	Path   string
	Backup string // path of the copy of the old file; empty if there was no file or nothing changed
	Same   bool   // the file had the entry already
}

// add adds demesne's entry to a file's text.
func (c Client) add(text, entry string) (string, error) {
	if c.toml {
		return inTOML(text, entry)
	}
	return inJSON(c.key)(text, entry)
}

// Install adds an entry that starts program to the client's file.
func (c Client) Install(p Place, program string) (did Did, err error) {
	return c.change(p, func(old string) (string, error) { return c.add(old, c.entry(program)) })
}

// change replaces the text of the client's file by what edit makes of it.
func (c Client) change(p Place, edit func(old string) (string, error)) (did Did, err error) {
	var old string
	var there bool
	path := c.path(p)
	if !filepath.IsAbs(path) {
		return did, fmt.Errorf("find configuration: $HOME %q is not an absolute path", p.Home)
	}
	did.Path, old, there, err = read(path)
	if err != nil {
		return did, fmt.Errorf("read configuration: %w", err)
	}
	text, err := c.edited(p, old, edit)
	if err != nil {
		at := did.Path
		var l *lineError
		if errors.As(err, &l) {
			at = fmt.Sprintf("%s:%d", at, l.line)
		}
		return did, fmt.Errorf("change %q: %w", at, err)
	}
	if there && text == old {
		did.Same = true
		return did, nil
	}
	mode := fs.FileMode(0o600)
	if there {
		info, err := os.Stat(did.Path)
		if err != nil {
			return did, fmt.Errorf("read configuration: %w", err)
		}
		mode, did.Backup = info.Mode().Perm(), did.Path+suffix
		if err := replace(did.Backup, []byte(old), mode); err != nil {
			return did, err
		}
	} else if err := os.MkdirAll(filepath.Dir(did.Path), 0o755); err != nil {
		return did, fmt.Errorf("write configuration: %w", err)
	}
	return did, replace(did.Path, []byte(text), mode)
}

// read resolves symbolic links and reads the file. A dangling link is an error: its owner's intention is
// unknown.
func read(path string) (real, text string, there bool, err error) {
	real, err = filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if to, err := os.Readlink(path); err == nil {
			return path, "", false, fmt.Errorf("%q is a link to %q, which does not exist", path, to)
		}
		return path, "", false, nil
	}
	if err != nil {
		return path, "", false, err
	}
	b, err := os.ReadFile(real)
	return real, string(b), err == nil, err
}

// edited returns the edited text, if both are valid.
func (c Client) edited(p Place, old string, edit func(string) (string, error)) (string, error) {
	if c.toml {
		if err := p.TOML(old); err != nil {
			return "", err
		}
	}
	text, err := edit(old)
	if err == nil && c.toml && p.TOML(text) != nil {
		err = errTable
	}
	return text, err
}

// replace writes the whole content of path atomically, or leaves the file unchanged.
func replace(path string, content []byte, mode fs.FileMode) error {
	if err := fsutil.WriteFile(path, content, mode); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return nil
}
