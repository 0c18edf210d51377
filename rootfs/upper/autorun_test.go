package upper

import (
	"fmt"
	"slices"
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

// TestExecutorTable checks the table itself: each pattern matches, a row before it does not hide it, and what runs by itself
// is protected. The exceptions are files that a program often has to change.
func TestExecutorTable(t *testing.T) {
	open := []string{"git, by pre-commit", "git, by lefthook", "git, by lint-staged", "git, by overcommit"}
	for _, e := range executors {
		for _, pattern := range strings.Fields(e.patterns) {
			p := strings.ReplaceAll(strings.ReplaceAll("top/"+pattern, "**", "x/y"), "*", "x")
			m, ok := executorOf(p)
			if !ok || m.by != e.by || m.class != e.class || m.base != "top" {
				t.Errorf("%s: %s is of %+v", pattern, p, m)
			}
			if strings.Count(pattern, "*") > 1 && !strings.HasSuffix(pattern, "/**") {
				t.Errorf("%s has two stars", pattern)
			}
		}
		if e.class == ByItself && !e.guard && !slices.Contains(open, e.by) {
			t.Errorf("%s: not protected", e.patterns)
		}
		if e.class == Build && e.guard {
			t.Errorf("%s: a build's file is protected", e.patterns)
		}
	}
}

// TestExecutorOf: directories that are obeyed as a whole, the nearest row, and links in place of directories.
func TestExecutorOf(t *testing.T) {
	for path, want := range map[string]string{
		".claude/settings.json": "Claude Code 0 true .", "a/.claude/commands/x/y.md": "Claude Code 0 true a", ".claude/CLAUDE.md": "Claude Code 1 false .",
		".claude/worktrees/w/main.go": "", ".claude/worktrees/w/.envrc": "direnv 0 true .claude/worktrees/w", ".claude/skills/s/.envrc": "direnv 0 true .claude/skills/s",
		".devcontainer/python/devcontainer.json": "VS Code 1 true .", ".vscode/mcp.json": "VS Code 0 true .", ".gemini/extensions/a/b.json": "Gemini CLI 0 true .",
		".opencode/plugin/x.ts": "opencode 0 true .", "src/.github/workflows/x.yml": "GitHub 2 false src", ".vscode": "", "vscode/tasks.json": "", "x.vscode/tasks.json": "",
	} {
		got := ""
		if m, ok := executorOf(path); ok {
			got = fmt.Sprint(m.by, " ", m.class, m.guard, " ", m.base)
		}
		if got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
	for path, want := range map[string]string{"a/.vscode": "VS Code", ".config/fish": "fish", ".config": "git", "a/.claude": "Claude Code", ".claude/commands": "Claude Code", "src": "", "fish": ""} {
		if m, _ := linkOf(path); m.by != want {
			t.Errorf("a link %q: %q, want %q", path, m.by, want)
		}
	}
}
