package client

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"demesne/rootfs/upper"
	"demesne/runner"
)

const gitEnv = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; set -e\n"

// gitRepository makes a repository with two branches, a nested one, and files that the host would execute.
func (c corner) gitRepository() string {
	c.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		c.Skip(err)
	}
	dir := c.tree(".vscode/tasks.json", "sub/deep/f", "f")
	script := gitEnv + `git init -q -b main; git add -A; git commit -qm one; git checkout -q -b other; echo other > f; mkdir dir; echo x > dir/g; git add -A; git commit -qm two; git checkout -q main
		echo host > .envrc; echo .envrc > .git/info/exclude; printf '#!/bin/sh\nexit 0\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit
		git init -q -b main nested; echo nested >> .git/info/exclude; cd nested; echo n > n; git add -A; git commit -qm nested`
	c.host(dir, script)
	return dir
}

// host runs a script on the host, in dir.
func (c corner) host(dir, script string) string {
	c.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

func (c corner) autorun(dir string) *upper.Autorun {
	c.Helper()
	found, err := upper.FindAutorun(dir)
	if err != nil {
		c.Fatal(err)
	}
	return found
}

// TestMountsGit: git works in a sandbox that may not write what the host's git would execute: it commits, switches
// branches, merges, stashes and collects garbage. Settings and hooks cannot be changed.
func TestMountsGit(t *testing.T) {
	c := newCorner(t)
	dir := c.gitRepository()
	client := c.connect()
	defer client.Close()
	before := c.autorun(dir)
	want := ".envrc .git/config .git/hooks .vscode nested/.git/config nested/.git/hooks"
	if got := strings.Join(before.Protected(), " "); got != want {
		t.Errorf("protected: %s, want %s", got, want)
	}
	mounts := []runner.Mount{{Source: dir, Target: dir}}
	for _, name := range before.Protected() {
		mounts = append(mounts, runner.Mount{Source: filepath.Join(dir, name), Target: filepath.Join(dir, name), ReadOnly: true})
	}
	got := c.in(client, runner.Spec{Mounts: mounts}, "cd "+dir+"\n"+gitEnv+`git status --short; echo new >> f; git diff --stat | tail -1; git add -A; git commit -qm three; git checkout -q -b fresh; echo x > sub/deep/new; git add -A; git commit -qm four
		git checkout -q other; cat f dir/g; git checkout -q main; test ! -e dir; git merge -q --no-edit fresh; git checkout -q -b third main~1; git cherry-pick fresh >/dev/null; git rebase -q main 2>/dev/null; git checkout -q main; git branch -q -D third 2>/dev/null
		echo wip >> f; git stash -q; git stash pop -q; git checkout -q f; git tag v1; git mv sub/deep/f sub/g; git commit -qm moved; git worktree add -q wt other; rm -rf wt; git worktree prune; git gc -q; git fsck >/dev/null; git log --oneline | wc -l
		cd nested; echo y > n; git commit -qam inner; git log --oneline | wc -l; cd ..
		set +e; for a in 'git config core.fsmonitor ./evil' 'git remote add evil ../x' 'echo x > .git/hooks/post-commit' 'git -C nested config core.hooksPath /tmp' 'mv .git .g' 'git init -q --separate-git-dir=elsewhere .'; do
			(eval "$a") >/dev/null 2>&1 && echo "worked: $a"; done; git status --short; true`)
	if want := " 1 file changed, 1 insertion(+)\nother\nx\n4\n2"; strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("inside: %s\nwant %s", got, want)
	}
	if out := c.host(dir, "git fsck 2>&1; git log --format=%s | tr '\\n' ' '; git status --short; git -C nested log --format=%s"); !strings.Contains(out, "moved four three one ") || !strings.Contains(out, "inner") {
		t.Errorf("outside: %s", out)
	}
	if diff := c.autorun(dir).Since(before); len(diff) > 0 {
		t.Errorf("changed: %v", diff)
	}
	c.in(client, runner.Spec{Mounts: mounts}, "cd "+dir+"; echo /tmp > .git/commondir; git init -q newrepo; mkdir -p .idea sub/.vscode; echo x | tee .idea/workspace.xml sub/.vscode/tasks.json Makefile")
	planted := ""
	for _, f := range c.autorun(dir).Since(before) {
		planted += fmt.Sprintf("%s %s %t, ", f.Path, f.By, f.New)
	}
	if got, want := planted, ".git/commondir git true, .idea/workspace.xml JetBrains true, sub/.vscode/tasks.json VS Code true, newrepo/.git/config git true, Makefile make true, "; got != want {
		t.Errorf("planted: %s, want %s", got, want)
	}
}
