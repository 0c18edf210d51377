package upper

import (
	"path"
	"strings"
	"testing"
)

func TestHostExecutes(t *testing.T) {
	for path, want := range map[string]string{
		"/workspace/.git/hooks/pre-commit": "git", "workspace/x/.envrc": "direnv", "/root/.bashrc": "bash",
		"/a/.vscode/tasks.json": "VS Code", "/a/package.json": "npm", "/usr/lib/python3/dist-packages/x.pth": "python",
		"/a/tasks.json": "", "/a/hooks/pre-commit": "", "/a/.git/hooks": "", "/": "", "": "", "/a/package.json/b": "",
		"/a/../.envrc": "direnv", "/a/.git/hooks/pre-commit.sample": "", "/a/.git/worktrees/w/commondir": "git", "x.mk": "make", "/.mkx": "", "/a.code-workspace": "VS Code", "/\xff/.envrc": "direnv", "/a/[": "",
	} {
		if got := ExecutedBy(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

// TestExecutorFilter checks that the filter passes a file of every row.
func TestExecutorFilter(t *testing.T) {
	for _, e := range executors {
		p := strings.ReplaceAll("top/"+e.pattern, "*", "x")
		if ExecutedBy(p) == "" || !executorFilter(path.Base(path.Dir(p)))(path.Base(p)) {
			t.Errorf("%s: %s does not pass", e.pattern, p)
		}
	}
	if executorFilter("src")("main.c") {
		t.Error("main.c passes")
	}
}
