package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"demesne/internal/text"
	"demesne/runner"
)

// branch is the work of an agent on a clone. The clone exists in the sandbox only. What comes back is a bundle of
// commits, which git checks as it checks what it fetches from a stranger; no hook and no configuration of the clone is
// used outside.
type branch struct {
	name    string
	project *project
	repo    string // its data
	author  []string
}

// bundleName is the bundle's name in /out.
const bundleName = "branch.bundle"

func newBranch(p *project, agent string) (*branch, error) {
	b := &branch{name: "demesne/" + agent + "-" + time.Now().UTC().Format("20060102-150405"), project: p, repo: p.git}
	if b.repo == "" {
		b.repo = filepath.Join(p.root, ".git")
	}
	if info, err := os.Lstat(b.repo); err != nil || !info.IsDir() {
		return nil, errors.New("--branch: the working directory is in no git repository")
	}
	if _, err := b.git("rev-parse", "--verify", "--quiet", "HEAD^{commit}"); err != nil {
		return nil, errors.New("--branch: the repository has no commit")
	}
	return b, nil
}

// input shows the repository's data, read-only.
func (b *branch) input() runner.Input {
	return runner.Input{Path: b.repo, Name: "repository.git"}
}

// cloneScript runs inside. $1 is the branch, $2 the commit, $3 the path of the clone, $4 the directory to work in; the
// rest is the program. Work that the agent did not commit becomes a last commit, so that it is not lost.
const cloneScript = `set -e
branch=$1 base=$2 root=$3 dir=$4; shift 4
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
mkdir -p "$root" && cd "$root"
git init -q .
echo /in/repository.git/objects > .git/objects/info/alternates
git fetch -q /in/repository.git '+refs/heads/*:refs/remotes/origin/*' '+refs/tags/*:refs/tags/*'
git checkout -q -b "$branch" "$base"
mkdir -p "$dir" && cd "$dir"
code=0
"$@" || code=$?
cd "$root"
if [ -n "$(git status --porcelain 2>/dev/null)" ]; then
  git add -A && git -c core.hooksPath=/dev/null commit -q --no-verify -m 'Keep work that the agent did not commit' || :
fi
if [ "$(git rev-parse "$branch")" != "$base" ]; then
  git bundle create -q /out/` + bundleName + ` "$base..$branch"
fi
exit $code`

// wrap returns the command that makes the clone, runs argv in it, and writes the bundle.
func (b *branch) wrap(argv []string) []string {
	base, _ := b.git("rev-parse", "HEAD") // newBranch has checked it
	return append([]string{"/bin/sh", "-c", cloneScript, "sh", b.name, base, b.project.root, b.project.dir}, argv...)
}

// fetch makes the commits of the bundle a branch of the user's repository, and reports it.
func (b *branch) fetch(a *app, r *runner.Result) error {
	if r == nil {
		return nil
	}
	bundle := filepath.Join(r.Out, bundleName)
	info, err := os.Lstat(bundle)
	if errors.Is(err, os.ErrNotExist) {
		os.Remove(r.Out) // only if it is empty
		a.say("agent: it made no commit: there is no branch")
		return nil
	}
	if err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("fetch branch: %q is not a file", bundle)
	}
	ref := "refs/heads/" + b.name
	if _, err := b.git("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-auto-maintenance", "--no-write-fetch-head", bundle, ref+":"+ref); err != nil {
		return hinted(fmt.Errorf("fetch branch: %w", err), "the commits are in %s", bundle)
	}
	if os.Remove(bundle) == nil {
		os.Remove(r.Out) // only if it is empty
	}
	count, err := b.git("rev-list", "--count", "HEAD.."+b.name)
	if err != nil {
		return err
	}
	a.say(fmt.Sprintf("agent: branch %s has %s new commits; review them with: git log -p HEAD..%s", b.name, count, b.name))
	return nil
}

// identity returns the variables that name the user as author of commits, as the user's git does: the home of the
// sandbox has no configuration of git.
func (p *project) identity(agent string) []string {
	name, _ := p.gitOutput("config", "user.name")
	mail, _ := p.gitOutput("config", "user.email")
	name, mail = cmp.Or(name, agent), cmp.Or(mail, agent+"@localhost")
	return []string{"GIT_AUTHOR_NAME=" + name, "GIT_AUTHOR_EMAIL=" + mail, "GIT_COMMITTER_NAME=" + name, "GIT_COMMITTER_EMAIL=" + mail}
}

func (b *branch) git(args ...string) (string, error) { return b.project.gitOutput(args...) }

// gitOutput runs git in the user's repository, with no hook, and with strict checks of what it receives.
func (p *project) gitOutput(args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-C", p.root, "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false",
		"-c", "fetch.fsckObjects=true", "-c", "transfer.fsckObjects=true"}, args...)...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "GIT_") }), "GIT_TERMINAL_PROMPT=0")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		line, _, _ := strings.Cut(strings.TrimSpace(string(exit.Stderr)), "\n")
		return "", fmt.Errorf("git %s: %s", args[0], text.SafeLine(line))
	}
	return strings.TrimSpace(string(out)), err
}
