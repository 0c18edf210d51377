package install

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
		{"cursor", `{"mcpServers":{"demesne" : {"command": "/old", "env": {"A": "}"}} ,"x":{}}}`, `{"mcpServers":{"demesne":{"command":P,"args":["mcp"],"env":{"A":"}"}},"x":{}}}`},
		{"claude-code", `{"numStartups": 12345678901234567}`, `{"mcpServers":{"demesne":{"type":"stdio","command":P,"args":["mcp"]}},"numStartups":12345678901234567}`},
		{"vscode", `{"inputs": []}`, `{"servers":{"demesne":{"type":"stdio","command":P,"args":["mcp"]}},"inputs":[]}`},
		{"opencode", `{"mcp":{}}`, `{"mcp":{"demesne":{"type":"local","command":[P,"mcp"],"enabled":true}}}`},
		{"gemini-cli", `{}`, `{"mcpServers":{"demesne":{"command":P,"args":["mcp"],"timeout":172800000}}}`},
		{"windsurf", ``, `{"mcpServers":{"demesne":{"command":P,"args":["mcp"]}}}`},
		{"zed", `{}`, `{"context_servers":{"demesne":{"source":"custom","command":P,"args":["mcp"]}}}`},
		{"claude-desktop", `{"globalShortcut":""}`, `{"globalShortcut":"","mcpServers":{"demesne":{"command":P,"args":["mcp"]}}}`},
	} {
		k, err := Find(c.client)
		if err != nil {
			t.Fatal(err)
		}
		got, err := k.add(c.before, program, Settings{})
		if want := strings.ReplaceAll(c.want, "P", quoted(program)); err != nil || !sameJSON(got, want) {
			t.Errorf("%s in %q: %v\n%s\nwant\n%s", c.client, c.before, err, got, want)
		}
		if again, err := k.add(got, program, Settings{}); err != nil || again != got {
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
		{"cursor", "// mine\n{}"},
		{"cursor", `{"mcpServers": {"a": 1,}}`},
		{"cursor", `{"mcpServers": {} // mine` + "\n}"},
		{"cursor", `{"mcpServers": {"demesne": {"url": "http://localhost"}}}`},
		{"cursor", `{"mcpServers": {"demesne": 1}}`},
		{"vscode", "{ /* mine"},
		{"vscode", "{ / mine\n}"},
		{"vscode", `[]`},
		{"vscode", `{"servers": []}`},
		{"vscode", `{"servers": {}, "servers": {}}`},
		{"vscode", `{} {}`},
		{"vscode", `{"a": `},
		{"codex", `mcp_servers = {}`},
		{"codex", "[mcp_servers.demesne]\nurl = \"mine\"\n"},
		{"codex", "[mcp_servers.demesne]\ncommand = \"mine\"\nargs = [\n]\n"},
		{"codex", "[ mcp_servers . \"demesne\" ]\n"},
		{"codex", "[mcp_servers.demesne.env]\nA = \"1\"\n"},
		{"codex", "[mcp_servers]\ndemesne = { command = \"mine\" }\n"},
		{"codex", "mcp_servers.demesne.command = \"mine\"\n"},
	} {
		k, _ := Find(c.client)
		if got, err := k.add(c.before, program, Settings{}); err == nil {
			t.Errorf("%s in %q: %q", c.client, c.before, got)
		}
	}
}

// TestAddTOML checks that codex's existing text is kept, and that the result is TOML.
func TestAddTOML(t *testing.T) {
	k, _ := Find("codex")
	for _, before := range []string{"", "\n", "model = \"x\" # mine", "[mcp_servers.other]\ncommand = \"x\"\n\n\n", "[mcp_servers.demesne2]\ncommand = \"x\"\n", "[[list]]\na = 1\n"} {
		got, err := k.add(before, program, Settings{})
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
		if again, err := k.add(got, program, Settings{}); err != nil || again != got {
			t.Errorf("%q: a second time: %v", before, err)
		}
	}
}

// TestInstall checks that a file keeps its mode and its place behind a link, and is backed up.
func TestInstall(t *testing.T) {
	home := t.TempDir()
	at := place(home)
	k, _ := Find("cursor")
	did, err := k.Install(at, program, Settings{})
	if err != nil || did.Path != home+"/.cursor/mcp.json" || did.Backup != "" || did.Same {
		t.Fatalf("%+v, %v", did, err)
	}
	if did, err = k.Install(at, program, Settings{}); err != nil || !did.Same {
		t.Errorf("a second time: %+v, %v", did, err)
	}
	real := filepath.Join(home, "dotfiles.json")
	before := []byte(`{"mcpServers":{"other":{}}}`)
	if err := errors.Join(os.WriteFile(real, before, 0o640), os.Remove(did.Path), os.Symlink(real, did.Path)); err != nil {
		t.Fatal(err)
	}
	if did, err = k.Install(at, program, Settings{}); err != nil || did.Path != real {
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
	if _, err = k.Install(at, program, Settings{}); err == nil {
		t.Error("comments were taken away")
	}
}

// place returns a Place that parses TOML in this process.
func place(home string) Place {
	return Place{Home: home, Env: func(string) string { return "" }, TOML: func(text string) error {
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
		_, err := k.Install(at, program, Settings{})
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
	if _, err := k.Install(at, program, Settings{}); err == nil || !strings.Contains(err.Error(), `is a link to "/nowhere/mcp.json", which does not exist`) {
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
		"claude-desktop": "/home/me/.config/Claude/claude_desktop_config.json", "gemini-cli": "/home/me/.gemini/settings.json",
		"windsurf": "/home/me/.codeium/windsurf/mcp_config.json", "zed": "/home/me/.config/zed/settings.json",
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

// TestKeeps checks that an entry that exists keeps the user's variables, arguments, timeout and comments. Only the
// program changes, and what the settings name.
func TestKeeps(t *testing.T) {
	tools := Settings{Tools: "files", Env: []string{"B=2", "A=1"}}
	for _, c := range []struct {
		client, before, want string
		s                    Settings
	}{
		{"cursor", `{"mcpServers": {"demesne": {"command": "/old/demesne", "args": ["mcp", "--tools", "x"], "env": {"A": "0", "Z": "9"}, "timeout": 5}}}`,
			`{"mcpServers": {"demesne": {"command": "/d/demesne", "args": ["mcp", "--tools", "x"], "env": {"A": "0", "Z": "9"}, "timeout": 5}}}`, Settings{}},
		{"cursor", `{"mcpServers": {"demesne": {"command": "/old/demesne", "args": ["mcp", "--tools=x", "--host", "h"], "env": {"A": "0", "Z": "9"}, "timeout": 5}}}`,
			`{"mcpServers": {"demesne": {"command": "/d/demesne", "args": ["mcp","--host","h","--tools","files"], "env": {"A":"1","B":"2","Z":"9"}, "timeout": 5}}}`, tools},
		{"cursor", `{"mcpServers": {"demesne": {"command": "/old/demesne-mcp", "args": ["--tools", "x"]}}}`,
			`{"mcpServers": {"demesne": {"command": "/d/demesne", "args": ["mcp","--tools","x"]}}}`, Settings{}},
		{"cursor", `{"mcpServers": {"demesne": {"command": "uvx", "args": ["demesne"]}}}`,
			`{"mcpServers": {"demesne": {"command": "/d/demesne", "args": ["mcp"]}}}`, Settings{}},
		{"opencode", `{"mcp": {"demesne": {"type": "local", "command": ["/old", "mcp", "--x"], "enabled": false, "environment": {"A": "0"}}}}`,
			`{"mcp": {"demesne": {"type": "local", "command": ["/d/demesne","mcp","--x","--tools","files"], "enabled": false, "environment": {"A":"1","B":"2"}}}}`, tools},
		{"zed", "// Zed's settings\n{\n  \"theme\": \"//x\", /* , } */\n  \"context_servers\": {\n    \"demesne\": {\"command\": \"/old\", \"args\": [\"mcp\",], }, // mine\n  },\n}\n",
			"// Zed's settings\n{\n  \"theme\": \"//x\", /* , } */\n  \"context_servers\": {\n    \"demesne\": {\"command\": \"/d/demesne\", \"args\": [\"mcp\",], }, // mine\n  },\n}\n", Settings{}},
		{"codex", "[mcp_servers.demesne]\ncommand = \"/old\" \nargs = [\"mcp\", \"--x\"]\ntool_timeout_sec = 5 # mine\n\n[mcp_servers.demesne.env]\nA = \"0\"\nZ = \"9\"\n[other]\n",
			"[mcp_servers.demesne]\ncommand = \"/d/demesne\"\nargs = [\"mcp\", \"--x\"]\ntool_timeout_sec = 5 # mine\n\n[mcp_servers.demesne.env]\nA = \"0\"\nZ = \"9\"\n[other]\n", Settings{}},
		{"codex", "[mcp_servers.demesne]\ncommand = \"/old\"\nstartup_timeout_sec = 5\n[mcp_servers.demesne.env]\nA = \"0\"\nZ = \"9\"\n[other]\n",
			"[mcp_servers.demesne]\ncommand = \"/d/demesne\"\nargs = [\"mcp\", \"--tools\", \"files\"]\nstartup_timeout_sec = 5\n[mcp_servers.demesne.env]\nB = \"2\"\nA = \"1\"\nZ = \"9\"\n[other]\n", tools},
		{"codex", "[mcp_servers.demesne]\ncommand = \"/old\"", "[mcp_servers.demesne]\ncommand = \"/d/demesne\"\nargs = [\"mcp\", \"--tools\", \"files\"]\n\n[mcp_servers.demesne.env]\nB = \"2\"\nA = \"1\"\n", tools},
	} {
		k, _ := Find(c.client)
		at := place(t.TempDir())
		path := k.path(at)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(c.before), 0o644)); err != nil {
			t.Fatal(err)
		}
		_, err := k.Install(at, "/d/demesne", c.s)
		if got, _ := os.ReadFile(path); err != nil || string(got) != c.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", c.client, err, got, c.want)
		}
		if did, err := k.Install(at, "/d/demesne", c.s); err != nil || !did.Same {
			t.Errorf("%s: a second time: %+v, %v", c.client, did, err)
		}
	}
}

// TestUninstall checks that removing the entry restores the file, for every client, whatever is around the entry.
func TestUninstall(t *testing.T) {
	for _, k := range table() {
		befores := []string{`{"a":1.50}`, `{"KEY":{"x":{"command":"x"}}}`, `{"KEY":{}}`, "{\n  \"KEY\": {\n    \"x\": {\n    }\n  }\n}\n"}
		if k.comments {
			befores = append(befores, "{ // mine\n \"KEY\": { /* x */ \"x\": {},\n }, }")
		}
		if k.toml {
			befores = []string{"a = 1\n", "[mcp_servers.other]\ncommand = \"x\"\n"}
		}
		for _, before := range befores {
			before = strings.ReplaceAll(before, "KEY", k.key)
			at := place(t.TempDir())
			path := k.path(at)
			if did, err := k.Uninstall(at); err != nil || !did.Same {
				t.Errorf("%s: no file: %+v, %v", k.Name, did, err)
			}
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(before), 0o644)); err != nil {
				t.Fatal(err)
			}
			if did, err := k.Uninstall(at); err != nil || !did.Same {
				t.Errorf("%s: no entry: %+v, %v", k.Name, did, err)
			}
			if _, err := k.Install(at, program, Settings{Env: []string{"A=1"}}); err != nil {
				t.Errorf("%s in %q: %v", k.Name, before, err)
			}
			did, err := k.Uninstall(at)
			got, _ := os.ReadFile(path)
			same := strings.TrimSpace(string(got)) == strings.TrimSpace(before)
			if !k.toml {
				after, wrong := k.plain(string(got))
				if wrong != nil {
					t.Errorf("%s in %q: %v", k.Name, before, wrong)
				}
				old, _ := k.plain(before)
				plain := strings.ReplaceAll(after, `"`+k.key+`": {}`, "")
				same = sameJSON(after, old) || !strings.Contains(before, k.key) && !strings.Contains(plain, server)
			}
			if err != nil || did.Same || !same || strings.Contains(before, "mine") && !strings.Contains(string(got), "// mine") {
				t.Errorf("%s in %q: %+v, %v\n%s", k.Name, before, did, err, got)
			}
		}
	}
	k, _ := Find("cursor")
	for _, c := range [][2]string{
		{`{"mcpServers": {"a": {}, "demesne": {"b": ","}}}`, `{"mcpServers": {"a": {}}}`},
		{`{"mcpServers": {"demesne" : 1 , "a": {}}}`, `{"mcpServers": { "a": {}}}`},
		{`{"demesne": 1}`, `{"demesne": 1}`},
	} {
		if got, err := k.removeJSON(c[0]); err != nil || got != c[1] {
			t.Errorf("%s: %q, %v", c[0], got, err)
		}
	}
}

// TestProject checks that a project's file is used where the client has one, and that no link of the project leads the
// change elsewhere.
func TestProject(t *testing.T) {
	for _, k := range table() {
		at := place(t.TempDir())
		at.Project = t.TempDir()
		did, err := k.Install(at, "demesne", Settings{})
		if k.project == "" {
			if err == nil {
				t.Errorf("%s: %+v", k.Name, did)
			}
			continue
		}
		if err != nil || !strings.HasSuffix(did.Path, "/"+k.project) {
			t.Errorf("%s: %+v, %v", k.Name, did, err)
		}
		if files, _ := os.ReadDir(at.Home); len(files) != 0 {
			t.Errorf("%s: wrote to the home directory", k.Name)
		}
	}
	k, _ := Find("cursor")
	for _, link := range []string{".cursor", ".cursor/mcp.json"} {
		at := place(t.TempDir())
		at.Project = t.TempDir()
		victim := filepath.Join(at.Home, "victim")
		target := victim
		if link == ".cursor" {
			target = filepath.Join(at.Home, "victims")
			victim = filepath.Join(target, "mcp.json")
		}
		path := filepath.Join(at.Project, link)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.MkdirAll(filepath.Dir(victim), 0o755), os.WriteFile(victim, []byte("{}"), 0o644), os.Symlink(target, path)); err != nil {
			t.Fatal(err)
		}
		_, err := k.Install(at, "demesne", Settings{})
		if got, _ := os.ReadFile(victim); err == nil || string(got) != "{}" {
			t.Errorf("%s: %v, %q", link, err, got)
		}
	}
}
