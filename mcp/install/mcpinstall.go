// Package install adds demesne's MCP server to the configuration files of MCP clients.
//
//	c, err := install.Find("cursor")
//	did, err := c.Install(install.Here(), "/usr/local/bin/demesne", install.Settings{})
//
// The existing content of a file is kept byte for byte; the new entry is inserted into it. In an entry that exists, only
// the program and what [Settings] name change. A file is parsed before it is changed, and a change of JSON is checked to affect
// only the entry. Install refuses files in neither format, comments where the client refuses them, and TOML with the entry in
// another form. It names the line of a syntax error. demesne-proxy parses TOML, because linking its parser would slow down
// every run.
//
// Install follows symbolic links, but not in a project, where others may have written them. Their target must exist. It
// replaces the file atomically and keeps the old one beside it.
package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"demesne/internal/fsutil"
)

// suffix is the suffix of the backup file.
const suffix = ".before-demesne"

// Here returns the Place of the current user.
func Here() Place {
	home, _ := os.UserHomeDir()
	return Place{Home: home, Env: os.Getenv, TOML: checkTOML}
}

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
// form of an entry. An entry raises the timeout of calls where the default is some minutes.
func table() []Client {
	return []Client{
		{Name: "claude-code", path: under("CLAUDE_CONFIG_DIR", "", ".claude.json"), project: ".mcp.json", key: "mcpServers", head: `"type": "stdio", `},
		{Name: "codex", path: under("CODEX_HOME", ".codex", "config.toml"), project: ".codex/config.toml", key: "mcp_servers", toml: true},
		{Name: "cursor", path: under("", ".cursor", "mcp.json"), project: ".cursor/mcp.json", key: "mcpServers"},
		{Name: "vscode", path: under("XDG_CONFIG_HOME", ".config", "Code/User/mcp.json"), project: ".vscode/mcp.json", key: "servers", head: `"type": "stdio", `, comments: true},
		{Name: "opencode", path: under("XDG_CONFIG_HOME", ".config", "opencode/opencode.json"), project: "opencode.json", key: "mcp", head: `"type": "local", `, tail: `, "enabled": true`, list: true, comments: true},
		{Name: "claude-desktop", path: under("XDG_CONFIG_HOME", ".config", "Claude/claude_desktop_config.json"), key: "mcpServers"},
		{Name: "gemini-cli", path: under("", ".gemini", "settings.json"), project: ".gemini/settings.json", key: "mcpServers", tail: `, "timeout": 172800000`, comments: true},
		{Name: "windsurf", path: under("", ".codeium/windsurf", "mcp_config.json"), key: "mcpServers"},
		{Name: "zed", path: under("XDG_CONFIG_HOME", ".config", "zed/settings.json"), project: ".zed/settings.json", key: "context_servers", head: `"source": "custom", `, comments: true},
	}
}

// Names returns the names of the known clients.
func Names() (names []string) {
	for _, c := range table() {
		names = append(names, c.Name)
	}
	return names
}

// Find returns the client with the given name.
func Find(name string) (Client, error) {
	for _, c := range table() {
		if c.Name == name {
			return c, nil
		}
	}
	return Client{}, fmt.Errorf("client %q: %w (known: %s)", name, errUnknown, strings.Join(Names(), ", "))
}

// Text returns the content of a file that holds nothing but the entry.
func (c Client) Text(program string, s Settings) (string, error) { return c.add("", program, s) }

// Did is the result of Install.
type Did struct {
	Path   string
	Backup string // path of the copy of the old file; empty if there was no file or nothing changed
	Same   bool   // the file had the entry already
}

// add adds demesne's entry to a file's text, or changes the entry that is there.
func (c Client) add(text, program string, s Settings) (string, error) {
	if c.toml {
		return addTOML(text, program, s)
	}
	return c.addJSON(text, program, s)
}

// Install adds an entry that starts program to the client's file. An entry that exists keeps its variables, arguments
// and other settings.
func (c Client) Install(p Place, program string, s Settings) (did Did, err error) {
	return c.change(p, func(old string) (string, error) { return c.add(old, program, s) })
}

// Uninstall removes the entry. Did.Same means that there was none.
func (c Client) Uninstall(p Place) (did Did, err error) {
	return c.change(p, func(old string) (string, error) {
		if c.toml {
			return removeTOML(old)
		}
		return c.removeJSON(old)
	})
}

// file returns the path of the client's file.
func (c Client) file(p Place) (string, error) {
	switch {
	case p.Project == "" && !filepath.IsAbs(c.path(p)):
		return "", fmt.Errorf("$HOME %q is not an absolute path", p.Home)
	case p.Project == "":
		return c.path(p), nil
	case c.project == "":
		return "", fmt.Errorf("%s has no configuration for one project", c.Name)
	}
	root, err := filepath.EvalSymlinks(p.Project)
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, c.project)
	for at := path; at != root; at = filepath.Dir(at) {
		if to, err := os.Readlink(at); err == nil {
			return "", fmt.Errorf("%q is a link to %q, which a project's file may not be", at, to)
		}
	}
	return path, nil
}

// change replaces the text of the client's file by edit's result.
func (c Client) change(p Place, edit func(old string) (string, error)) (did Did, err error) {
	var old string
	var there bool
	path, err := c.file(p)
	if err != nil {
		return did, fmt.Errorf("find configuration: %w", err)
	}
	did.Path, old, there, err = read(path)
	if err != nil {
		return did, fmt.Errorf("read configuration: %w", err)
	}
	text, err := c.edited(p, old, edit)
	if err != nil {
		at := did.Path
		if l, ok := errors.AsType[*lineError](err); ok {
			at = fmt.Sprintf("%s:%d", at, l.line)
		}
		return did, fmt.Errorf("change %q: %w", at, err)
	}
	if text == old {
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
