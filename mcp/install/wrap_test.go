package install

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWrap: only command and args of the one entry change.
func TestWrap(t *testing.T) {
	flags := []string{"--egress", "package-managers", "--secret", "KEY=env:KEY", "--secret-for", "KEY=api.test"}
	for _, c := range []struct{ client, before, want string }{
		{"cursor", `{"a": 1.50, "mcpServers": {"x": {"command": "npx", "args": ["-y", "srv"], "env": {"KEY": "v", "B": "w"}}, "y": {"command": "z"}}}`,
			`{"a": 1.50, "mcpServers": {"x": {"command": "/d/demesne", "args": ["mcp","wrap","--egress","package-managers","--secret","KEY=env:KEY","--secret-for","KEY=api.test","--env","B","--","npx","-y","srv"], "env": {"KEY": "v", "B": "w"}}, "y": {"command": "z"}}}`},
		{"opencode", `{"mcp": {"x": {"type": "local", "command": ["srv", "1"]}}}`,
			`{"mcp": {"x": {"type": "local", "command": ["/d/demesne","mcp","wrap","--egress","package-managers","--secret","KEY=env:KEY","--secret-for","KEY=api.test","--","srv","1"]}}}`},
		{"vscode", "{\"servers\": {\n  // mine, and {\n  \"x\": {\"command\": \"srv\",},\n},}",
			"{\"servers\": {\n  // mine, and {\n  \"x\": {\n      \"args\": [\"mcp\",\"wrap\",\"--egress\",\"package-managers\",\"--secret\",\"KEY=env:KEY\",\"--secret-for\",\"KEY=api.test\",\"--\",\"srv\"],\"command\": \"/d/demesne\",},\n},}"},
		{"codex", "model = \"m\"\n[mcp_servers.x]\ncommand = \"npx\" \nargs = [\"srv\"]\nstartup_timeout_sec = 5\n[mcp_servers.x.env]\nB = \"w\"\n",
			"model = \"m\"\n[mcp_servers.x]\ncommand = \"/d/demesne\"\nargs = [\"mcp\",\"wrap\",\"--egress\",\"package-managers\",\"--secret\",\"KEY=env:KEY\",\"--secret-for\",\"KEY=api.test\",\"--env\",\"B\",\"--\",\"npx\",\"srv\"]\nstartup_timeout_sec = 5\n[mcp_servers.x.env]\nB = \"w\"\n"},
	} {
		home := t.TempDir()
		k, _ := Find(c.client)
		p := place(home)
		path := k.path(p)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(c.before), 0o600)); err != nil {
			t.Fatal(err)
		}
		did, err := k.Wrap(p, "/d/demesne", "x", flags)
		if got, _ := os.ReadFile(path); err != nil || string(got) != c.want || did.Backup == "" {
			t.Errorf("%s: %v\n%s\nwant\n%s", c.client, err, got, c.want)
		}
		if _, err := k.Wrap(p, "/d/demesne", "x", flags); !errors.Is(err, errWrapped) {
			t.Errorf("%s a second time: %v", c.client, err)
		}
		if _, err := k.Wrap(p, "/d/demesne", "none", flags); !errors.Is(err, errNoServer) {
			t.Errorf("%s: an unknown server: %v", c.client, err)
		}
	}
}

func TestWrapRefuses(t *testing.T) {
	for _, c := range []struct{ client, before, want string }{
		{"cursor", `{"mcpServers": {"x": {"url": "https://h.test/mcp"}}}`, "no command"},
		{"cursor", `{"mcpServers": {"x": 7}}`, "not plain JSON"},
		{"cursor", `{"mcpServers": []}`, "not plain JSON"},
		{"cursor", ``, "no such server"},
		{"codex", "[mcp_servers.x]\ncommand = 'npx'\n", "edit it by hand"},
		{"codex", "[mcp_servers.x]\ncommand = \"npx\"\nargs = [\n\"a\"]\n", "edit it by hand"},
		{"codex", "[mcp_servers.x]\nurl = \"https://h.test\"\n", "edit it by hand"},
		{"codex", "[mcp_servers]\nx = {command = \"npx\"}\n", "no such server"},
	} {
		k, _ := Find(c.client)
		edit := func(old string) (string, error) { return k.wrapJSON(old, "demesne", "x", nil) }
		if k.toml {
			edit = func(old string) (string, error) { return wrapTOML(old, "demesne", "x", nil) }
		}
		if got, err := edit(c.before); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s in %q: %q %v", c.client, c.before, got, err)
		}
	}
}
