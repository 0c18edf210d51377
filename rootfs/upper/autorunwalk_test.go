package upper

import (
	"errors"
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
	a, err := FindAutorun(dir)
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
			".claude/settings.json .claude/skills .git/config .git/hooks .husky .mcp.json"},
		{"agents", []string{".gemini/settings.json", ".opencode/plugin/x.js", "opencode.json", ".cursor/hooks.json", ".vscode/mcp.json", ".zed/tasks.json", ".devcontainer.json", ".claude/commands/x.md", ".claude/agents/x.md", ".claude/loop.md", "CLAUDE.md", "sub/.gemini/settings.json"},
			".claude/agents .claude/commands .cursor .devcontainer.json .gemini .opencode .vscode .zed opencode.json"},
		{"tools", []string{".devcontainer/py/devcontainer.json", ".run/x.run.xml", "x/y.run.xml", ".dir-locals.el", ".gdbinit", ".lldbinit", ".pdbrc", "app-gdb.py", ".Rprofile", ".Renviron", ".irbrc", ".ghci", ".iex.exs", "jupyter_server_config.py", "mise.toml", ".config/mise/config.toml", "x.sublime-project", "sub/.gdbinit", ".tool-versions", ".npmrc", "AGENTS.md"},
			".Renviron .Rprofile .config/mise .devcontainer .dir-locals.el .gdbinit .ghci .iex.exs .irbrc .lldbinit .pdbrc .run app-gdb.py jupyter_server_config.py mise.toml x.sublime-project"},
		{"without known files", []string{".vscode/extensions.json", ".zed/x", ".codex/x/y"}, ".codex .vscode .zed"},
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
			if got := strings.Join(a.Protected(), " "); got != row.want || a.Unseen != "" {
				t.Errorf("%s (unseen %q), want %s", got, a.Unseen, row.want)
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
	want := []string{"sub/.envrc:direnv:false", "tools/clean:git:false", ".git/hooks/old:git:false", ".vscode:VS Code:true", ".git/commondir:git:true", ".git/hooks/new:git:true", "evil/config:git:true", "evil/hooks/h:git:true",
		"package.json:npm:false", "sub/Makefile:make:true"}
	if !slices.Equal(got, want) {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// small are bounds that tests reach with few files.
var small = bounds{dirs: 40, names: 1000, list: 60, depth: 16, files: 20}

func findSmall(t *testing.T, dir string) *Autorun {
	t.Helper()
	a, err := (&Autorun{name: dir, most: small}).Again()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestAutorunBounds: a walk of a huge or hostile tree ends, and says that it did not see all of it.
func TestAutorunBounds(t *testing.T) {
	for _, row := range []struct {
		name, format string
		files        int
	}{
		{"directories", "%d/f", small.dirs + 1},
		{"names", "f%d", small.list + 1},
		{"files", "%d.mk", small.files + 1},
		{"all names", "%[1]d/%[1]d", 0},
		{"levels", strings.Repeat("d/", small.depth+1) + "%d", 1},
	} {
		files := many(row.files, row.format)
		for i := range 30 {
			files = append(files, many(b2i(row.files == 0)*(small.names/30+2), fmt.Sprintf("%d/", i)+"%d")...)
		}
		if findSmall(t, yard(t, files...)).Unseen == "" {
			t.Errorf("%s: all was seen", row.name)
		}
	}
	b := autorunBounds
	if b.dirs < 1<<15 || b.names < 1<<19 || b.list < 1<<15 || b.depth < 64 || b.files < 2048 {
		t.Errorf("real projects are larger than %+v", b)
	}
}

func many(n int, format string) (files []string) {
	for i := range n {
		files = append(files, fmt.Sprintf(format, i))
	}
	return files
}

// TestAutorunHidden: whatever a sandbox adds, the files that matter are found, and come first.
func TestAutorunHidden(t *testing.T) {
	for _, row := range []struct {
		name   string
		before []string
		plant  func(t *testing.T, dir string)
		want   []string // the first files
		unseen bool
	}{
		{"packages", many(15, "node_modules/p%d/package.json"), func(t *testing.T, dir string) {
			plant(t, dir, many(15, "node_modules/q%d/Makefile")...)
			plant(t, dir, "src/.vscode/tasks.json", "src/package.json")
		}, []string{"src/.vscode/tasks.json", "src/package.json"}, false},
		{"builds", nil, func(t *testing.T, dir string) {
			plant(t, dir, many(15, "a%d/package.json")...)
			plant(t, dir, "x/y/.envrc", ".vscode/tasks.json")
		}, []string{".vscode/tasks.json", "x/y/.envrc", "a0/package.json"}, false},
		{"more builds than the bound", []string{"z/.envrc", "z/package.json"}, func(t *testing.T, dir string) {
			plant(t, dir, many(small.files+1, "a/%d.mk")...)
			plant(t, dir, "z/.envrc = evil", "z/package.json = evil", "z/new/.envrc")
		}, []string{"z/.envrc", "z/new/.envrc", "z/package.json"}, true},
		{"the same program, more than the bound", []string{"z/y/.envrc", "z/f"}, func(t *testing.T, dir string) {
			plant(t, dir, many(small.files+1, "a/%d.code-workspace")...)
			plant(t, dir, "z/y/.envrc = evil", "z/.envrc", "z/.vscode/tasks.json")
		}, []string{"z/y/.envrc", "z/.envrc", "z/.vscode/tasks.json"}, true},
		{"more directories than the bound", []string{"z/y/f"}, func(t *testing.T, dir string) {
			for i := range 2 * small.dirs {
				if err := os.Mkdir(fmt.Sprintf("%s/a%d", dir, i), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			plant(t, dir, "z/.envrc", "z/y/.zed/tasks.json")
		}, []string{"z/.envrc", "z/y/.zed/tasks.json"}, true},
		{"more names than the bound", []string{"z/y/f"}, func(t *testing.T, dir string) {
			plant(t, dir, "z/f")
			for i := range small.list + 2 {
				if err := os.Link(dir+"/z/f", fmt.Sprintf("%s/z/%d", dir, i)); err != nil {
					t.Fatal(err)
				}
			}
			plant(t, dir, "z/.vimrc", "z/.zed/tasks.json")
		}, []string{"z/.vimrc", "z/.zed/tasks.json"}, true},
		{"a directory that cannot be listed", []string{"z/f"}, func(t *testing.T, dir string) {
			plant(t, dir, "z/.envrc", "z/.vscode/tasks.json")
			if err := errors.Join(os.Chmod(dir+"/z/.vscode", 0o300), os.Chmod(dir+"/z", 0o300)); err != nil {
				t.Fatal(err)
			}
		}, []string{"z/.envrc", []string{"z/.vscode", "z/.vscode/tasks.json"}[b2i(os.Getuid() == 0)]}, os.Getuid() != 0},
		{"deep", nil, func(t *testing.T, dir string) {
			if err := os.MkdirAll(dir+strings.Repeat("/d", small.depth+4), 0o755); err != nil {
				t.Fatal(err)
			}
			plant(t, dir, "z/.envrc")
		}, []string{"z/.envrc"}, true},
		{"long names", nil, func(t *testing.T, dir string) {
			at, err := os.OpenRoot(dir)
			for range 18 {
				if err == nil {
					err = at.Mkdir(strings.Repeat("d", 255), 0o755)
				}
				if err == nil {
					at, err = at.OpenRoot(strings.Repeat("d", 255))
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}, nil, true},
		{"many repositories", nil, func(t *testing.T, dir string) {
			plant(t, dir, many(10, "a%d/.git/HEAD")...)
			plant(t, dir, "z/.envrc")
		}, []string{"z/.envrc"}, false},
		{"in a protected directory", nil, func(t *testing.T, dir string) {
			plant(t, dir, many(small.files+1, ".opencode/node_modules/%d.js")...)
			plant(t, dir, ".opencode/plugin/x.js")
		}, []string{".opencode/plugin/x.js"}, false},
		{"a link in place of a directory", []string{"z/y/.envrc", "z/f"}, func(t *testing.T, dir string) {
			if err := os.RemoveAll(dir + "/z"); err != nil {
				t.Fatal(err)
			}
			plant(t, dir, "z -> /elsewhere")
		}, []string{"z"}, false},
		{"a renamed parent", []string{"z/y/.envrc"}, func(t *testing.T, dir string) {
			if err := os.Rename(dir+"/z", dir+"/new"); err != nil {
				t.Fatal(err)
			}
		}, []string{"new/y/.envrc"}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := yard(t, row.before...)
			before := findSmall(t, dir)
			row.plant(t, dir)
			after, err := before.Again()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range after.Since(before) {
				got = append(got, f.Path)
			}
			if got = got[:min(len(got), len(row.want))]; !slices.Equal(got, row.want) || (after.Unseen != "") != row.unseen {
				t.Errorf("%q (unseen %.99q), want %q", got, after.Unseen, row.want)
			}
			os.Chmod(dir+"/z", 0o755)
			os.Chmod(dir+"/z/.vscode", 0o755)
		})
	}
}

// TestAutorunGitFiles: of git's own files only those with commands are named. A commit in a submodule changes no such file.
func TestAutorunGitFiles(t *testing.T) {
	const module = `.git/modules/lib/config = [core]
	worktree = ../../../lib
	fsmonitor = ./watch
[remote "origin"]
	url = ../origin/lib
	fetch = +refs/heads/*:refs/remotes/origin/*
[branch "main"]
	merge = refs/heads/main
[filter "x"]
	clean = sh tools/clean
`
	dir := yard(t, ".git/HEAD", ".git/config", ".git/modules/lib/HEAD", module, ".git/modules/lib/refs/heads/main = 1", "lib/.git = gitdir: ../.git/modules/lib", "lib/watch", "lib/tools/clean", "lib/sh", "lib/origin/lib")
	before := find(t, dir)
	plant(t, dir, ".git/modules/lib/refs/heads/main = 2", "lib/origin/lib = 2", "lib/sh = 2")
	if files := find(t, dir).Since(before); len(files) > 0 {
		t.Errorf("a commit: %+v", files)
	}
	plant(t, dir, "lib/watch = 2", "lib/tools/clean = 2", ".git/rebase-merge/git-rebase-todo = exec evil", ".git/worktrees -> /elsewhere")
	var got []string
	for _, f := range find(t, dir).Since(before) {
		got = append(got, f.Path)
	}
	if want := []string{"lib/watch", "lib/tools/clean", ".git/worktrees", ".git/rebase-merge/git-rebase-todo"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestReview(t *testing.T) {
	of := func(n int, format, by string, class Class) (files []Executable) {
		for i := range n {
			files = append(files, Executable{Path: fmt.Sprintf(format, i), By: by, Class: class, New: true})
		}
		return files
	}
	for _, row := range []struct {
		files []Executable
		want  string
	}{
		{nil, ""},
		{of(1, "/p/%d.mk", "make", Build), "/p/0.mk (new), which make would execute"},
		{slices.Concat(of(25, "/p/%d/package.json", "npm", Build), of(1, "/p/%d/.envrc", "direnv", ByItself), []Executable{{Path: "/p/CLAUDE.md", By: "Claude Code", Class: Obeyed}}),
			"/p/0/.envrc (new), which direnv would execute\n/p/CLAUDE.md (changed), which Claude Code would obey\n25 files that builds would execute: /p/0/package.json (new), /p/1/package.json (new), /p/2/package.json (new) and 22 more"},
		{slices.Concat(of(13, "/p/%d/.envrc", "direnv", ByItself), of(1, "/p/\x1b[2J\n%d", "git", ByItself)),
			func() (want string) {
				for i := range 10 {
					want += fmt.Sprintf("/p/%d/.envrc (new), which direnv would execute\n", i)
				}
				return want + "and 3 more, which direnv would execute\n" + `"/p/\x1b[2J\n0" (new), which git would execute`
			}()},
	} {
		got := strings.ReplaceAll(strings.Join(Review(row.files), "\n"), "review before use: ", "")
		if got != row.want {
			t.Errorf("%s\nwant %s", got, row.want)
		}
	}
	lines := []Executable{}
	for i := range 300 {
		lines = append(lines, of(3, "/p/%d", fmt.Sprint(i), ByItself)...)
	}
	if n := len(Review(lines)); n != 600 {
		t.Errorf("300 programs have %d lines", n)
	}
}

// TestAutorunLarge: the walk sees all of a tree as deep and wide as real projects.
func TestAutorunLarge(t *testing.T) {
	deep := "a/b/c/d/e/f/g/h/i/j/k/l/.vscode/tasks.json"
	dir := yard(t, deep)
	for i := range 2500 {
		if err := os.Mkdir(fmt.Sprintf("%s/%d", dir, i), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	a := find(t, dir)
	if _, found := a.files[deep]; !found || a.Unseen != "" {
		t.Errorf("found %t, unseen %q", found, a.Unseen)
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
	for b.Loop() {
		a, err := FindAutorun(os.Getenv("AUTORUN_DIR"))
		if err != nil {
			b.Skip(err)
		}
		b.ReportMetric(float64(len(a.files)), "files")
	}
}
