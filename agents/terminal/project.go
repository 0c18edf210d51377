// Package terminal has what an agent at the user's terminal works with: the project, the home that it keeps there, and the
// directory of one session.
//
//	project.go    the user's directory, its git repository, and the agent's home for it
//	branch.go     the clone of --branch, and the commits that come back as a bundle
//	session.go    the directory of one session, locked (flock(2)) until its process ends
//
// cli/agent makes the sandbox and starts the agent. A sandbox may have written the project and its repository, so git
// runs without the repository's hooks: see package internal/git.
package terminal

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"demesne/internal/fsutil"
	"demesne/internal/git"
	"demesne/internal/procself"
	"demesne/internal/text"
	"demesne/runner"
)

// Project is the directory that an agent works on, at its own path. Without a Root it is a directory of the sandbox.
type Project struct {
	Dir  string // where the user is, absolute, without symbolic links
	Root string // of the git repository, or Dir
	Data string // the directory of the repository's data, if it is outside of Root: Root is a linked worktree
}

// Find returns the project of a directory. It refuses a directory that contains the user's home, unless that is a
// checkout: an agent could write to all of it.
func Find(dir, home string) (*Project, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("find project: %w", err)
	}
	if real, err := filepath.EvalSymlinks(home); err == nil {
		home = real
	}
	atHome := dir == home && procself.Checkout(home)
	if fsutil.Contains(dir, home) && !atHome {
		return nil, text.Hinted(fmt.Errorf("%q contains your home directory: an agent may change everything in its directory", dir), "go to a project's directory first")
	}
	p := &Project{Dir: dir, Root: dir}
	data := "" // of the repository or submodule around dir, if that is not a directory .git beside its files
	for at := dir; at == home && atHome || !fsutil.Contains(at, home); at = filepath.Dir(at) {
		info, err := os.Lstat(filepath.Join(at, ".git"))
		if err != nil {
			continue
		}
		switch {
		case info.IsDir() && (data == "" || fsutil.Contains(filepath.Join(at, ".git/modules"), data)):
			p.Root = at
		case info.Mode().IsRegular() && data == "":
			if git := worktreeOf(at); git != "" && !fsutil.Contains(git, home) {
				p.Root, p.Data = at, git
			} else if data = gitDirOf(at); data != "" {
				continue // a submodule: the repository around it has its data
			}
		}
		return p, nil
	}
	return p, nil
}

// gitDirOf returns the directory that the file root/.git names, without symbolic links, or "".
func gitDirOf(root string) string {
	name, found := strings.CutPrefix(firstLine(filepath.Join(root, ".git")), "gitdir: ")
	if !found {
		return ""
	}
	return resolved(root, name)
}

// resolved returns the path of a name in a file of dir, without symbolic links, or "".
func resolved(dir, name string) string {
	if name != "" && !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	if real, err := filepath.EvalSymlinks(name); name != "" && err == nil {
		return real
	}
	return ""
}

// worktreeOf returns the data of the repository that root is a linked worktree of, or "". An earlier sandbox may have
// written root/.git and anything below root. So the worktree's own data must lie in the repository's directory
// "worktrees", where git-worktree(1) puts it, and name root in turn. A sandbox that could write there had all of the
// repository.
func worktreeOf(root string) string {
	own := gitDirOf(root)
	if own == "" || resolved(own, firstLine(filepath.Join(own, "gitdir"))) != filepath.Join(root, ".git") {
		return ""
	}
	above, common := filepath.Dir(own), resolved(own, firstLine(filepath.Join(own, "commondir")))
	if filepath.Base(above) != "worktrees" || common != filepath.Dir(above) {
		return ""
	}
	return common
}

// firstLine returns the first line of a small regular file, or "".
func firstLine(path string) string {
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	line, _ := bufio.NewReader(io.LimitReader(f, 8<<10)).ReadString('\n')
	return strings.TrimRight(line, "\r\n")
}

// Mounts returns the project's directories, writable, each at its own path.
func (p *Project) Mounts() []runner.Mount {
	if p.Root == "" {
		return nil
	}
	m := []runner.Mount{{Source: p.Root, Target: p.Root}}
	if p.Data != "" {
		m = append(m, runner.Mount{Source: p.Data, Target: p.Data})
	}
	return m
}

// KeptHome makes the home directory that an agent keeps for this project, and returns its path.
func (p *Project) KeptHome(home, agent string) (string, error) {
	sum := sha256.Sum256([]byte(p.Root))
	path := filepath.Join(agentsDir(home), agent, filepath.Base(p.Root)+"-"+hex.EncodeToString(sum[:6]))
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", fmt.Errorf("make the agent's home: %w", fsutil.Reason(err))
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("make the agent's home: %w", fsutil.Reason(err))
	}
	if info, err := os.Lstat(real); err != nil || !info.IsDir() {
		return "", fmt.Errorf("make the agent's home: %w", errors.Join(err, fs.ErrInvalid))
	}
	return real, nil
}

// Identity returns the variables that name the user, or else the agent, as author of commits: the home of the sandbox has
// no configuration of git.
func (p *Project) Identity(agent string) []string {
	if p.Root == "" {
		return nil
	}
	name, email := git.Author(p.Root)
	return git.Identity(cmp.Or(name, agent), cmp.Or(email, agent+"@localhost"))
}

// git runs git in the user's repository, for one line of output. The repository's configuration applies, so it may only
// run commands that start no program.
func (p *Project) git(args ...string) (string, error) {
	return git.Run([]string{"GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1"}, append([]string{"-C", p.Root}, args...)...)
}
