package terminal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"demesne/agents"
	"demesne/internal/fsutil"
	"demesne/internal/git"
	"demesne/internal/text"
	"demesne/runner"
)

// Branch is the work of an agent on a clone. The clone exists in the sandbox only. What comes back is a bundle of
// commits: see receive. No hook and no configuration of the clone is used outside.
type Branch struct {
	Name    string
	Commits string // how many came back; empty: none

	project *Project
	repo    string // its data
	base    string // the commit that the clone starts from
	format  string // of object names
}

// bundleName is the bundle's name in /out. A larger bundle than maxBundle is left there.
const (
	bundleName = "branch.bundle"
	maxBundle  = 1 << 30
)

// Branch returns the branch of a new clone.
func (p *Project) Branch(name string) (b *Branch, err error) {
	b = &Branch{project: p, repo: p.Data}
	if b.repo == "" {
		b.repo = filepath.Join(p.Root, ".git")
	}
	if info, err := os.Lstat(b.repo); err != nil || !info.IsDir() {
		return nil, text.Hinted(errors.New("--branch: the working directory is in no git repository"), "git init, git add and git commit make one")
	}
	if b.format, err = p.git("rev-parse", "--show-object-format"); err != nil {
		return nil, fmt.Errorf("--branch: %w", err)
	}
	if b.base, err = p.git("rev-parse", "--verify", "--quiet", "HEAD^{commit}"); err != nil {
		return nil, text.Hinted(errors.New("--branch: the repository has no commit"), "commit first: the agent works on a clone of the last commit")
	}
	b.Name = b.freeName(name)
	return b, nil
}

// freeName returns the name of a branch that can be made.
func (b *Branch) freeName(last string) string {
	taken := func(name string) bool {
		_, err := b.project.git("rev-parse", "--verify", "--quiet", "refs/heads/"+name)
		return err == nil
	}
	group := "demesne/"
	if taken("demesne") { // a branch of this name leaves no room for others below it
		group = "demesne-"
	}
	name := group + last
	for n := 2; taken(name) && n < 100; n++ {
		name = fmt.Sprintf("%s%s-%d", group, last, n)
	}
	return name
}

// Group changes the name until no earlier session's attempts use it: each attempt gets a branch NAME/attempt-N.
func (b *Branch) Group() error {
	for name, n := b.Name, 2; n < 100; n++ {
		if _, err := b.project.git("rev-parse", "--verify", "--quiet", "refs/heads/"+b.Name+"/attempt-1"); err != nil {
			return nil
		}
		b.Name = fmt.Sprintf("%s-%d", name, n)
	}
	return fmt.Errorf("--fork: the branches %s/attempt-1 and similar ones exist", b.Name)
}

// Tell names the clone's commit, and says that uncommitted changes are not in the clone.
func (b *Branch) Tell(say func(string)) {
	say(fmt.Sprintf("agent: it works on a clone of commit %.10s; changes that are not committed are not in it", b.base))
}

// Input shows the repository's data, read-only.
func (b *Branch) Input() runner.Input {
	return runner.Input{Path: b.repo, Name: "repository.git"}
}

// The scripts of a sandbox with a clone. $1 is the branch, $2 the commit, $3 the path of the clone, $4 the directory to
// work in, $5 the format of object names, $6 the shell text of --setup; the rest is the program.
//
// A session runs begin, clone and work. For attempts the prepared sandbox runs begin, home and clone, and each fork begin,
// home and work.
const (
	beginScript = `set -e
branch=$1 base=$2 root=$3 dir=$4 format=$5 setup=$6 from=/in/repository.git; shift 6
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
`
	// homeScript makes the home, which is in the sandbox's own files.
	homeScript = `mkdir -p "$HOME" && cp -R ` + agents.ConfigDir + "/" + SeedDir + `/. "$HOME"
`
	// cloneScript makes the clone. Files that --setup adds are not work of the agent.
	cloneScript = `command -v git >/dev/null || { echo 'demesne: agent: --branch needs git in the sandbox' >&2; exit 127; }
mkdir -p "$root" && cd "$root"
git init -q --object-format="$format" .
mkdir -p .git/objects/info
echo "$from/objects" > .git/objects/info/alternates
[ ! -f "$from/shallow" ] || cp "$from/shallow" .git/shallow
git fetch -q --no-auto-maintenance "$from" '+refs/heads/*:refs/remotes/origin/*' '+refs/tags/*:refs/tags/*'
git checkout -q --detach "$base"
if [ -f .gitmodules ] && [ -d "$from/modules" ]; then
  git config -f .gitmodules --name-only --get-regexp '^submodule\..*\.path$' | while read -r key; do
    name=${key#submodule.} name=${name%.path}
    [ -d "$from/modules/$name" ] || continue
    git config "submodule.$name.url" "$from/modules/$name"
    git -c protocol.file.allow=always submodule --quiet update --init -- "$(git config -f .gitmodules "$key")" >/dev/null || :
  done
fi
mkdir -p "$dir"
if [ -n "$setup" ]; then
  (cd "$dir" && exec /bin/sh -c "$setup") || { code=$?; echo "demesne: agent: --setup: exit code $code" >&2; exit $code; }
  cd "$root" && mkdir -p .git/info
  git -c core.quotePath=false ls-files --others --exclude-standard --directory | sed 's/[][*?!#\\]/\\&/g; s/^/\//' >> .git/info/exclude
fi
`
	// workScript runs the program. Work that the agent did not commit becomes a last commit, so that it is not lost.
	workScript = `cd "$root" && git checkout -q -b "$branch"
cd "$dir"
code=0
trap : HUP INT TERM # for the program: its work comes back however it ends
"$@" || code=$?
cd "$root"
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
if [ -n "$(git status --porcelain 2>/dev/null)" ]; then
  git add -A && git -c core.hooksPath=/dev/null -c commit.gpgSign=false commit -q --no-verify -m 'Keep work that the agent did not commit' || :
fi
tip=$(git rev-parse --verify -q HEAD) || tip=$base
if [ "$tip" != "$base" ]; then
  git update-ref "refs/heads/$branch" "$tip" 2>/dev/null || :
  git bundle create -q /out/` + bundleName + ` "$base..refs/heads/$branch"
fi
exit $code`
)

// SeedDir has the files for the home of an attempt, in [agents.ConfigDir].
const SeedDir = ".home"

// Wrap returns the command that makes the clone, runs argv in it, and writes the bundle.
func (b *Branch) Wrap(setup string, argv []string) []string {
	return b.script(beginScript+cloneScript+workScript, setup, argv...)
}

// Prepare returns the command that makes the clone for attempts, in the prepared sandbox.
func (b *Branch) Prepare(setup string) []string {
	return b.script(beginScript+homeScript+cloneScript, setup)
}

// Attempt returns the command that runs argv in the clone of a fork, and writes the bundle.
func (b *Branch) Attempt(argv []string) []string {
	return b.script(beginScript+homeScript+workScript, "", argv...)
}

// script returns the command of a script.
func (b *Branch) script(text, setup string, argv ...string) []string {
	return append([]string{"/bin/sh", "-c", text, "sh", b.Name, b.base, b.project.Root, b.project.Dir, b.format, setup}, argv...)
}

// Fetch makes the commits of the bundle a branch of the user's repository, and reports it.
func (b *Branch) Fetch(say func(string), r *runner.Result) error {
	if r == nil {
		return nil
	}
	bundle := filepath.Join(r.Out, bundleName)
	info, err := os.Lstat(bundle)
	if errors.Is(err, os.ErrNotExist) {
		os.Remove(r.Out) // only if it is empty
		say("agent: it made no commit: there is no branch")
		return nil
	}
	switch {
	case err != nil || !info.Mode().IsRegular():
		err = errors.New("it is not a file")
	case info.Size() > maxBundle:
		err = fmt.Errorf("it has %s; the limit is %s", text.FormatBytes(info.Size()), text.FormatBytes(maxBundle))
	}
	if err == nil {
		b.Commits, err = b.receive(bundle)
	}
	if err != nil {
		return text.Hinted(fmt.Errorf("fetch branch: %w", err), "what the agent left is %s", bundle)
	}
	if os.Remove(bundle) == nil {
		os.Remove(r.Out) // only if it is empty
	}
	commits := b.Commits + " new commits"
	if b.Commits == "1" {
		commits = "1 new commit"
	}
	say(fmt.Sprintf("agent: branch %s has %s; review with: git log -p HEAD..%s", b.Name, commits, b.Name))
	return nil
}

// receive adds the commits of a bundle to the user's repository as a new branch, and counts them. It fetches them by way
// of an empty repository: the user's has a configuration that names programs to run while fetching, and an earlier
// sandbox may have written it. Git checks the objects as if a stranger had sent them, and adds none if the check fails.
func (b *Branch) receive(bundle string) (count string, err error) {
	dir, err := os.MkdirTemp("", "demesne-branch-")
	if err != nil {
		return "", fsutil.Reason(err)
	}
	defer os.RemoveAll(dir)
	strict := func(args ...string) (string, error) {
		return git.Run([]string{"GIT_DIR=" + dir, "GIT_OBJECT_DIRECTORY=" + b.repo + "/objects", "GIT_ALLOW_PROTOCOL=file",
			"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull}, args...)
	}
	if _, err := git.Run([]string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull}, "init", "--quiet", "--bare", "--template=", "--object-format="+b.format, dir); err != nil {
		return "", err
	}
	if shallow, err := os.ReadFile(filepath.Join(b.repo, "shallow")); err == nil {
		if err := os.WriteFile(filepath.Join(dir, "shallow"), shallow, 0o600); err != nil {
			return "", err
		}
	}
	ref := "refs/heads/" + b.Name
	if _, err = strict("update-ref", "refs/heads/base", b.base); err != nil {
		return "", err
	}
	if _, err = strict("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-auto-maintenance", "--no-write-fetch-head", bundle, ref+":"+ref); err != nil {
		return "", err
	}
	tip, err := strict("rev-parse", "--verify", ref)
	if err == nil {
		count, err = strict("rev-list", "--count", b.base+".."+tip)
	}
	if err == nil {
		_, err = b.project.git("update-ref", "-m", "demesne: work of an agent", ref, tip, "")
	}
	return count, err
}
