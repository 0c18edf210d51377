package terminal

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestMissingServers checks which programs and files of .mcp.json a sandbox lacks.
func TestMissingServers(t *testing.T) {
	home := t.TempDir()
	for _, name := range []string{"proj/own", "bin/server", "tools/lib/main.js", "seen/x"} {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := &Project{Dir: home + "/proj", Root: home + "/proj"}
	look := func(name string) string { return filepath.Join(home, "bin", name) }
	for text, want := range map[string][]Missing{
		"": nil, "no JSON": nil, `{"mcpServers":{"a":{"command":"/bin/sh","args":["-c","x"]}}}`: nil,
		`{"mcpServers":{"a":{"command":"server"},"b":{"command":"` + home + `/proj/own","args":["` + home + `/tools/lib/main.js","` + home + `/none","` + home + `/seen/x"]}}}`: {
			{"a", home + "/bin/server"}, {"b", home + "/tools/lib/main.js"}},
	} {
		if err := os.WriteFile(home+"/proj/.mcp.json", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := p.MissingServers(home, []string{home + "/proj", home + "/seen"}, look); !slices.Equal(got, want) {
			t.Errorf("%s: %v", text, got)
		}
	}
	if err := os.Remove(home + "/proj/.mcp.json"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", home+"/proj/.mcp.json"); err != nil {
		t.Fatal(err)
	}
	if got := p.MissingServers(home, nil, look); got != nil {
		t.Errorf("a link: %v", got)
	}
}
