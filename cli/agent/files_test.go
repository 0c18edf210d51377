package agent

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"demesne/agents"
	"demesne/rootfs/upper"
)

// TestProjectFiles ties the table of agents to the table of files that programs of the host execute or obey. An agent's
// files in a project are known and protected. Its instructions are known, and stay writable.
func TestProjectFiles(t *testing.T) {
	catalog, err := agents.Open(agents.Options{Env: func(string) string { return "" }, Home: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if len(catalog.Rows()) == 0 {
		t.Error("no agents")
	}
	for _, p := range catalog.Rows() {
		dir := t.TempDir()
		if len(p.Project) == 0 {
			t.Errorf("%s: names no file of a project", p.Name)
		}
		for _, f := range append(p.Project, p.Context) {
			if upper.ExecutedBy(f) == "" {
				t.Errorf("%s: %s is not in the table of rootfs/upper", p.Name, f)
			}
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, f)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, f), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		found, err := upper.FindAutorun(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range p.Project {
			at := f
			for at != "." && !slices.Contains(found.Protected(), at) {
				at = path.Dir(at)
			}
			if at == "." {
				t.Errorf("%s: a sandbox can write %s", p.Name, f)
			}
		}
		if slices.Contains(found.Protected(), p.Context) {
			t.Errorf("%s: a sandbox cannot write %s", p.Name, p.Context)
		}
	}
}
