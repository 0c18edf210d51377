// Package clients writes demesne's MCP server into the configuration of programs that start
// such servers.
//
//	c, err := mcpinstall.Find("cursor")
//	did, err := c.Install(mcpinstall.Here(), "/usr/local/bin/demesne")
//
// What is in a file stays as it is, byte for byte, and the new entry is put between: a file
// is understood before it is changed, and its change is checked to be the entry and nothing
// else. What is not understood (comments in JSON, an entry of that name in TOML, what is neither) is
// refused, with the line. TOML is read by demesne-egress: its parser would cost every run.
// The file is replaced in one step, links are followed to what they mean, which has to be there, and the
// old one is kept beside it.
package mcpinstall

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrUnknown says that a name is no client's.
var ErrUnknown = errors.New("not known")

// Server is what demesne's entry is called.
const Server = "demesne"

// suffix is of the copy of what was there before.
const suffix = ".before-demesne"

// Client is a program that starts MCP servers.
type Client struct {
	Name  string
	path  func(Place) string
	entry func(program string) string
	add   func(text, entry string) (string, error)
	toml  bool // what the file is, which add does not look at
}

// Place is where a user's files are.
type Place struct {
	Home string
	Env  func(string) string
	TOML func(text string) error // what is wrong with it, with the line
}

// Here is the place of whoever calls.
func Here() Place {
	home, _ := os.UserHomeDir()
	return Place{home, os.Getenv, checkTOML}
}

// lineError is what is wrong with a line of a file.
type lineError struct {
	error
	line int
}

func (e *lineError) Unwrap() error { return e.error }

// under is a path below the directory that a variable names, or below the home directory.
func under(variable, otherwise, path string) func(Place) string {
	return func(p Place) string {
		if dir := p.Env(variable); variable != "" && filepath.IsAbs(dir) {
			return filepath.Join(dir, path)
		}
		return filepath.Join(p.Home, otherwise, path)
	}
}

// table has a row for each client. Its rows differ in where the file is, under which key
// servers are, and how one is written.
var table = []Client{
	{"claude-code", under("CLAUDE_CONFIG_DIR", "", ".claude.json"), stdioJSON, inJSON("mcpServers"), false},
	{"codex", under("CODEX_HOME", ".codex", "config.toml"), codexTOML, inTOML, true},
	{"cursor", under("", ".cursor", "mcp.json"), plainJSON, inJSON("mcpServers"), false},
	{"vscode", under("XDG_CONFIG_HOME", ".config", "Code/User/mcp.json"), stdioJSON, inJSON("servers"), false},
	{"opencode", under("XDG_CONFIG_HOME", ".config", "opencode/opencode.json"), opencodeJSON, inJSON("mcp"), false},
	{"claude-desktop", under("XDG_CONFIG_HOME", ".config", "Claude/claude_desktop_config.json"), plainJSON, inJSON("mcpServers"), false},
}

// Names lists the clients.
func Names() (names []string) {
	for _, c := range table {
		names = append(names, c.Name)
	}
	return names
}

// Find gives the client with that name.
func Find(name string) (Client, error) {
	for _, c := range table {
		if c.Name == name {
			return c, nil
		}
	}
	return Client{}, fmt.Errorf("client %q: %w (known: %s)", name, ErrUnknown, strings.Join(Names(), ", "))
}

// Text is what the file is to be, when it has nothing else in it.
func (c Client) Text(program string) (string, error) { return c.add("", c.entry(program)) }

// Did says what Install has done.
type Did struct {
	Path   string
	Backup string // of what was there; empty if nothing was, or nothing changed
	Same   bool   // the entry was there already
}

// Install puts an entry that starts program into the client's file.
func (c Client) Install(p Place, program string) (did Did, err error) {
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
	text, err := c.changed(p, old, program)
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

// read finds a file behind links and reads it. A link to what is not there is an error: nobody knows what
// its owner wants.
func read(path string) (real, text string, there bool, err error) {
	real, err = filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if to, err := os.Readlink(path); err == nil {
			return path, "", false, fmt.Errorf("%q is a link to %q, which is not there", path, to)
		}
		return path, "", false, nil
	}
	if err != nil {
		return path, "", false, err
	}
	b, err := os.ReadFile(real)
	return real, string(b), err == nil, err
}

// changed is a file's text with the entry.
func (c Client) changed(p Place, old, program string) (string, error) {
	if c.toml {
		if err := p.TOML(old); err != nil {
			return "", err
		}
	}
	text, err := c.add(old, c.entry(program))
	if err == nil && c.toml && p.TOML(text) != nil {
		err = errTable
	}
	return text, err
}

// replace gives path its whole content, or leaves it as it is.
func replace(path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write configuration: %w", err)
	}
	return nil
}
