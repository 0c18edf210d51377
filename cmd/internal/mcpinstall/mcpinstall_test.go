package mcpinstall

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

const program = `/opt/de"mesne/demesne`

// TestAdd checks that every client's entry is added where the client looks for it, whatever the file has.
func TestAdd(t *testing.T) {
	for _, c := range []struct{ client, before, want string }{
		{"cursor", ``, `{"mcpServers":{"demesne":{"command":P,"args":["mcp"]}}}`},
		{"cursor", " \n", `{"mcpServers":{"demesne":{"command":P,"args":["mcp"]}}}`},
		{"cursor", `{}`, `{"mcpServers":{"demesne":{"command":P,"args":["mcp"]}}}`},
		{"cursor", `{"z": 1.50, "mcpServers": {}}`, `{"z":1.5,"mcpServers":{"demesne":{"command":P,"args":["mcp"]}}}`},
		{"cursor", `{"mcpServers": {"other": {"command": "x"}}, "a": [1, {"mcpServers": 2}]}`,
			`{"mcpServers":{"demesne":{"command":P,"args":["mcp"]},"other":{"command":"x"}},"a":[1,{"mcpServers":2}]}`},
		{"cursor", `{"mcpServers":{"demesne" : {"command": "/old", "env": {"A": "}"}} ,"x":{}}}`, `{"mcpServers":{"demesne":{"command":P,"args":["mcp"]},"x":{}}}`},
		{"claude-code", `{"numStartups": 12345678901234567}`, `{"mcpServers":{"demesne":{"type":"stdio","command":P,"args":["mcp"]}},"numStartups":12345678901234567}`},
		{"vscode", `{"inputs": []}`, `{"servers":{"demesne":{"type":"stdio","command":P,"args":["mcp"]}},"inputs":[]}`},
		{"opencode", `{"mcp":{}}`, `{"mcp":{"demesne":{"type":"local","command":[P,"mcp"],"enabled":true}}}`},
		{"claude-desktop", `{"globalShortcut":""}`, `{"globalShortcut":"","mcpServers":{"demesne":{"command":P,"args":["mcp"]}}}`},
	} {
		k, err := Find(c.client)
		if err != nil {
			t.Fatal(err)
		}
		got, err := k.add(c.before, k.entry(program))
		if want := strings.ReplaceAll(c.want, "P", quoted(program)); err != nil || !sameJSON(got, want) {
			t.Errorf("%s in %q: %v\n%s\nwant\n%s", c.client, c.before, err, got, want)
		}
		if again, err := k.add(got, k.entry(program)); err != nil || again != got {
			t.Errorf("%s in %q: a second time: %v\n%s", c.client, c.before, err, again)
		}
		for _, piece := range []string{"12345678901234567", "1.50", `{"mcpServers": 2}`} {
			if strings.Contains(c.before, piece) && !strings.Contains(got, piece) {
				t.Errorf("%s in %q: %s is written in another way", c.client, c.before, piece)
			}
		}
	}
}

func TestAddRefuses(t *testing.T) {
	for _, c := range []struct{ client, before string }{
		{"vscode", "// mine\n{}"},
		{"vscode", `{"servers": {"a": 1,}}`},
		{"vscode", `{"servers": {} // mine` + "\n}"},
		{"vscode", `[]`},
		{"vscode", `{"servers": []}`},
		{"vscode", `{"servers": {}, "servers": {}}`},
		{"vscode", `{} {}`},
		{"vscode", `{"a": `},
		{"codex", `mcp_servers = {}`},
		{"codex", "[mcp_servers.demesne]\ncommand = \"mine\"\n"},
		{"codex", "[ mcp_servers . \"demesne\" ]\n"},
		{"codex", "[mcp_servers.demesne.env]\nA = \"1\"\n"},
		{"codex", "[mcp_servers]\ndemesne = { command = \"mine\" }\n"},
		{"codex", "mcp_servers.demesne.command = \"mine\"\n"},
	} {
		k, _ := Find(c.client)
		if got, err := k.add(c.before, k.entry(program)); err == nil {
			t.Errorf("%s in %q: %q", c.client, c.before, got)
		}
	}
}

// TestAddTOML checks that codex's existing text is kept, and that the result is TOML.
func TestAddTOML(t *testing.T) {
	k, _ := Find("codex")
	for _, before := range []string{"", "\n", "model = \"x\" # mine", "[mcp_servers.other]\ncommand = \"x\"\n\n\n", "[mcp_servers.demesne2]\ncommand = \"x\"\n", "[[list]]\na = 1\n"} {
		got, err := k.add(before, k.entry(program))
		if err != nil || !strings.HasPrefix(got, strings.TrimRight(before, "\n")) {
			t.Errorf("%q: %v\n%s", before, err, got)
			continue
		}
		var file struct {
			Servers map[string]struct {
				Command string
				Args    []string
			} `toml:"mcp_servers"`
		}
		if _, err := toml.Decode(got, &file); err != nil || file.Servers[server].Command != program || len(file.Servers[server].Args) != 1 {
			t.Errorf("%q: %v\n%s", before, err, got)
		}
		if again, err := k.add(got, k.entry(program)); err != nil || again != got {
			t.Errorf("%q: a second time: %v", before, err)
		}
	}
}

// TestInstall checks that a file keeps its mode and its place behind a link, and is backed up.
func TestInstall(t *testing.T) {
	home := t.TempDir()
	at := place(home)
	k, _ := Find("cursor")
	did, err := k.Install(at, program)
	if err != nil || did.Path != home+"/.cursor/mcp.json" || did.Backup != "" || did.Same {
		t.Fatalf("%+v, %v", did, err)
	}
	if did, err = k.Install(at, program); err != nil || !did.Same {
		t.Errorf("a second time: %+v, %v", did, err)
	}
	real := filepath.Join(home, "dotfiles.json")
	before := []byte(`{"mcpServers":{"other":{}}}`)
	if err := errors.Join(os.WriteFile(real, before, 0o640), os.Remove(did.Path), os.Symlink(real, did.Path)); err != nil {
		t.Fatal(err)
	}
	if did, err = k.Install(at, program); err != nil || did.Path != real {
		t.Fatalf("a link: %+v, %v", did, err)
	}
	kept, _ := os.ReadFile(did.Backup)
	info, err := os.Stat(real)
	if err != nil || info.Mode().Perm() != 0o640 || string(kept) != string(before) {
		t.Errorf("mode %v, kept %q, %v", info.Mode(), kept, err)
	}
	if b, _ := os.ReadFile(real); !json.Valid(b) || !strings.Contains(string(b), `"other":{}`) {
		t.Errorf("it says %s", b)
	}
	if left, _ := filepath.Glob(home + "/.*-*"); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	if err := os.WriteFile(real, []byte("{ // mine\n}"), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err = k.Install(at, program); err == nil {
		t.Error("comments were taken away")
	}
}

// place returns a Place that parses TOML in this process.
func place(home string) Place {
	return Place{home, func(string) string { return "" }, func(text string) error {
		_, err := toml.Decode(text, new(map[string]any))
		var wrong toml.ParseError
		if errors.As(err, &wrong) {
			return &lineError{err, wrong.Position.Line}
		}
		return err
	}}
}

// TestInstallRefuses checks that invalid JSON or TOML is rejected with its line, and a dangling link too; they
// are left unchanged.
func TestInstallRefuses(t *testing.T) {
	for _, c := range []struct{ client, before, want string }{
		{"cursor", "{\n  \"a\": 1,\n}\n", `mcp.json:3": not plain JSON`},
		{"cursor", "{\n  \"a\": 1\n", `mcp.json:3": not plain JSON`},
		{"cursor", "\n[]", `mcp.json": not plain JSON`},
		{"codex", "model = \"x\"\n\n[mcp_servers other]\ncommand = 1\n", `config.toml:3": `},
		{"codex", "a = 1\na = 2\n", `config.toml:2": `},
		{"codex", "[mcp_servers]\n\"demesne\" = 1", `config.toml": has mcp_servers as an inline table`},
		{"codex", "mcp_servers . other = 1\n\"mcp_servers\" . 'demesne' = {}", `config.toml": has mcp_servers as an inline table`},
		{"codex", "\"mcp\\u005fservers\" = 1", `config.toml": has mcp_servers as an inline table`}, // which only a parser sees
	} {
		k, _ := Find(c.client)
		at := place(t.TempDir())
		path := k.path(at)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(c.before), 0o644)); err != nil {
			t.Fatal(err)
		}
		_, err := k.Install(at, program)
		after, rerr := os.ReadFile(path)
		if err == nil || !strings.Contains(err.Error(), c.want) || string(after) != c.before || rerr != nil {
			t.Errorf("%s in %q: %v, want %s; it says %q, %v", c.client, c.before, err, c.want, after, rerr)
		}
	}
	k, _ := Find("cursor")
	at := place(t.TempDir())
	path := k.path(at)
	if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o755), os.Symlink("/nowhere/mcp.json", path)); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Install(at, program); err == nil || !strings.Contains(err.Error(), `is a link to "/nowhere/mcp.json", which does not exist`) {
		t.Errorf("a link to nothing: %v", err)
	}
	if to, err := os.Readlink(path); err != nil || to != "/nowhere/mcp.json" {
		t.Errorf("the link became %q, %v", to, err)
	}
}

func TestPaths(t *testing.T) {
	set := Place{Home: "/home/me", Env: func(k string) string {
		return map[string]string{"CODEX_HOME": "/codex", "XDG_CONFIG_HOME": "relative"}[k]
	}}
	for name, want := range map[string]string{
		"claude-code": "/home/me/.claude.json", "codex": "/codex/config.toml", "cursor": "/home/me/.cursor/mcp.json",
		"vscode": "/home/me/.config/Code/User/mcp.json", "opencode": "/home/me/.config/opencode/opencode.json",
		"claude-desktop": "/home/me/.config/Claude/claude_desktop_config.json",
	} {
		k, err := Find(name)
		if err != nil || k.path(set) != want {
			t.Errorf("%s: %s, %v", name, k.path(set), err)
		}
	}
	if _, err := Find("emacs"); !errors.Is(err, errUnknown) {
		t.Errorf("emacs: %v", err)
	}
}
