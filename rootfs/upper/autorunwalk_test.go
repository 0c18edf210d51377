package upper

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// yard makes a directory with files. "NAME -> TARGET" is a link, and "NAME = TEXT" a file with that content.
func yard(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	plant(t, dir, files...)
	return dir
}

func plant(t *testing.T, dir string, files ...string) {
	t.Helper()
	for _, f := range files {
		name, target, isLink := strings.Cut(f, " -> ")
		name, text, _ := strings.Cut(name, " = ")
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if isLink {
			err = os.Symlink(target, at)
		} else {
			err = os.WriteFile(at, []byte(strings.ReplaceAll(text, "DIR", dir)), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func find(t *testing.T, dir string) *Autorun {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	a, err := FindAutorun(root)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAutorunProtected(t *testing.T) {
	for _, row := range []struct {
		name  string
		files []string
		want  string
	}{
		{"empty", nil, ""},
		{"plain", []string{".envrc", ".vscode/tasks.json", ".vscode/extensions.json", ".idea/runConfigurations/x.xml", "package.json", "Makefile", ".github/workflows/ci.yml", ".bashrc", "src/.envrc", "src/.vscode/tasks.json", "x.code-workspace"},
			".bashrc .envrc .idea .vscode x.code-workspace"},
		{"git", []string{".git/HEAD", ".git/config", ".git/hooks/pre-commit", ".git/hooks/x.sample", ".husky/pre-commit", ".claude/settings.json", ".claude/skills/s.md", ".mcp.json"},
			".claude/settings.json .git/config .git/hooks .husky .mcp.json"},
		{"no hooks", []string{".git/HEAD"}, ""},
		{"nested", []string{".git/config", "a/b/.git/config", "a/b/.git/hooks/x", "a/b/.envrc", "a/.envrc", "a/b/c/.envrc"}, ".git/config a/b/.envrc a/b/.git/config a/b/.git/hooks"},
		{"submodule", []string{".git/config", ".git/modules/lib/x/HEAD", ".git/modules/lib/x/config", ".git/modules/lib/x/hooks/h", "lib/x/.git = gitdir: ../../.git/modules/lib/x\n", "lib/x/.envrc"},
			".git/config .git/modules/lib/x/config .git/modules/lib/x/hooks lib/x/.envrc lib/x/.git"},
		{"worktree inside", []string{".git/config", ".git/worktrees/w/HEAD", ".git/worktrees/w/commondir", ".git/worktrees/w/config.worktree", "w/.git = gitdir: DIR/.git/worktrees/w\n"},
			".git/config .git/worktrees/w/commondir .git/worktrees/w/config.worktree w/.git"},
		{"worktree of elsewhere", []string{".git = gitdir: /elsewhere/.git/worktrees/w\n", ".envrc"}, ".envrc .git"},
		{"bare", []string{"bare/HEAD", "bare/config", "bare/objects/x", "bare/refs/x", "bare/hooks/h"}, "bare/config bare/hooks"},
		{"includes", []string{`.git/config = [include] path = ../.gitinclude
[includeIf "gitdir:~/]x/"]
	path = "DIR/sub/inc" ; comment
[include]
	path = /etc/passwd
	path = ../../outside
	path = none
[core]
	hooksPath = tools/hooks
`, ".gitinclude = [include]\n\tpath = deep/er\n", "sub/inc", "deep/er = [include]\n path = ../.gitinclude\n", "tools/hooks/h"}, ".git/config .gitinclude deep/er sub/inc tools/hooks"},
		{"links", []string{".envrc -> /etc/passwd", ".git/config -> ../x", ".git/hooks -> ../h", "h/pre-commit", "x", ".vscode -> vs", "vs/tasks.json", "up -> ..", "loop -> loop"}, ""},
		{"linked git", []string{".git -> other", "other/config", "other/hooks/x"}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := yard(t, row.files...)
			a := find(t, dir)
			if got := strings.Join(a.Protected(), " "); got != row.want || a.Truncated {
				t.Errorf("%s (truncated %t), want %s", got, a.Truncated, row.want)
			}
			for _, p := range a.Protected() {
				if fi, err := os.Lstat(filepath.Join(dir, p)); err != nil || fi.Mode().Type()&^os.ModeDir != 0 {
					t.Errorf("%s: %v, %v", p, fi, err)
				}
			}
		})
	}
}

// TestAutorunSince: the end names what is new or changed, also what cannot be protected because it did not exist.
func TestAutorunSince(t *testing.T) {
	dir := yard(t, ".git/HEAD", ".git/config = [filter \"x\"]\n\tclean = ./tools/clean --x\n", ".git/hooks/old", ".envrc", "package.json", "tools/clean", "linked -> x", "sub/.envrc -> a")
	before := find(t, dir)
	if same := find(t, dir).Since(before); len(same) > 0 {
		t.Errorf("unchanged: %v", same)
	}
	if err := os.Remove(filepath.Join(dir, "sub/.envrc")); err != nil {
		t.Fatal(err)
	}
	plant(t, dir, ".git/hooks/new", ".git/hooks/x.sample", ".git/commondir = evil", "package.json = changed", "tools/clean = changed", "sub/.envrc -> b", "sub/Makefile", "README", ".vscode -> vs",
		"evil/HEAD", "evil/config", "evil/objects/x", "evil/refs/x", "evil/hooks/h")
	if err := os.Chmod(filepath.Join(dir, ".git/hooks/old"), 0o755); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range find(t, dir).Since(before) {
		got = append(got, fmt.Sprintf("%s:%s:%t", e.Path, e.By, e.New))
	}
	want := []string{".git/commondir:git:true", ".git/hooks/new:git:true", ".git/hooks/old:git:false", ".vscode:VS Code:true", "evil/config:git:true", "evil/hooks/h:git:true",
		"package.json:npm:false", "sub/.envrc:direnv:false", "sub/Makefile:make:true", "tools/clean:git:false"}
	if !slices.Equal(got, want) {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestAutorunBounds: a walk of a huge or hostile tree ends, and says that it did not see all of it.
func TestAutorunBounds(t *testing.T) {
	for _, row := range []struct {
		name string
		make func(dir string) error
	}{
		{"wide", func(dir string) (err error) {
			for i := 0; i <= autorunDirs && err == nil; i++ {
				err = os.Mkdir(fmt.Sprintf("%s/%d", dir, i), 0o755)
			}
			return err
		}},
		{"deep", func(dir string) error { return os.MkdirAll(dir+strings.Repeat("/d", 100), 0o755) }},
		{"many", func(dir string) (err error) {
			for i := 0; i <= autorunFiles && err == nil; i++ {
				err = os.WriteFile(fmt.Sprintf("%s/%d.mk", dir, i), nil, 0o644)
			}
			return err
		}},
	} {
		dir := t.TempDir()
		if err := row.make(dir); err != nil {
			t.Fatal(err)
		}
		if !find(t, dir).Truncated {
			t.Errorf("%s: not truncated", row.name)
		}
	}
}

// TestAutorunLarge: the walk sees all of a tree as deep and wide as those of real projects.
func TestAutorunLarge(t *testing.T) {
	deep := "a/b/c/d/e/f/g/h/i/j/k/l/.vscode/tasks.json"
	dir := yard(t, deep)
	for i := range 2500 {
		if err := os.Mkdir(fmt.Sprintf("%s/%d", dir, i), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	a := find(t, dir)
	if _, found := a.files[deep]; !found || a.Truncated {
		t.Errorf("found %t, truncated %t", found, a.Truncated)
	}
}

// TestAutorunFifo: a fifo in place of a file does not block the walk.
func TestAutorunFifo(t *testing.T) {
	dir := yard(t)
	if out, err := exec.Command("mkfifo", dir+"/.envrc", dir+"/.git").CombinedOutput(); err != nil {
		t.Skipf("%v: %s", err, out)
	}
	a := find(t, dir)
	if len(a.Protected()) > 0 || len(a.Since(find(t, t.TempDir()))) != 2 {
		t.Errorf("%+v", a)
	}
}

func TestParseConfig(t *testing.T) {
	const text = "[a]x=1\n[B \"c]d\\\"]\"] Y = \"two # not\" three ; rest\n# no\n;no = no\n[broken\nz = \\\n  4\n[e.f]\n\tflag\n\tk = a\\\"b\n"
	want := []setting{{"a", "x", "1"}, {"b", "y", "two # not three"}, {"b", "z", "4"}, {"e.f", "k", `a"b`}}
	if got := parseConfig(text); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add("[a \"b\"] c = \"d")
	f.Fuzz(func(t *testing.T, text string) { parseConfig(text) })
}

func BenchmarkFindAutorun(b *testing.B) {
	root, err := os.OpenRoot(os.Getenv("AUTORUN_DIR"))
	if err != nil {
		b.Skip(err)
	}
	defer root.Close()
	for b.Loop() {
		a, err := FindAutorun(root)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(a.files)), "files")
	}
}
