package main

import (
	"bufio"
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
	"demesne/runner"
)

// project is the directory that an agent works on, at its own path.
type project struct {
	dir  string // where the user is, absolute, without symbolic links
	root string // of the git repository, or dir
	git  string // the directory of the repository's data, if it is outside of root: root is a linked worktree
}

// findProject returns the project of the working directory. It refuses a directory that contains the user's home: an
// agent could write to all of it.
func findProject(home string) (*project, error) {
	dir, err := os.Getwd()
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("find working directory: %w", err)
	}
	if real, err := filepath.EvalSymlinks(home); err == nil {
		home = real
	}
	if contains(dir, home) {
		return nil, hinted(fmt.Errorf("%q contains your home directory: an agent may change everything in its directory", dir), "go to a project's directory first")
	}
	p := &project{dir: dir, root: dir}
	for at := dir; !contains(at, home); at = filepath.Dir(at) {
		info, err := os.Lstat(filepath.Join(at, ".git"))
		if err != nil {
			continue
		}
		switch {
		case info.IsDir():
			p.root = at
		case info.Mode().IsRegular():
			if git := worktreeOf(at); git != "" && !contains(git, home) {
				p.root, p.git = at, git
			}
		}
		return p, nil
	}
	return p, nil
}

// contains reports whether path is dir or below it. It errs on the side of true.
func contains(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err != nil || rel == "." || filepath.IsLocal(rel)
}

// worktreeOf returns the data of the repository that root is a linked worktree of, or "". An earlier sandbox may have
// written root/.git, so the repository must name it in turn, as git-worktree(1) does: no sandbox can write there.
func worktreeOf(root string) string {
	link := filepath.Join(root, ".git")
	own, found := strings.CutPrefix(firstLine(link), "gitdir: ")
	if !found || !filepath.IsAbs(own) || firstLine(filepath.Join(own, "gitdir")) != link {
		return ""
	}
	common := firstLine(filepath.Join(own, "commondir"))
	if common != "" && !filepath.IsAbs(common) {
		common = filepath.Join(own, common)
	}
	if real, err := filepath.EvalSymlinks(common); common != "" && err == nil {
		return real
	}
	return ""
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

// mounts returns the project's directories, writable, each at its own path.
func (p *project) mounts() []runner.Mount {
	m := []runner.Mount{{Source: p.root, Target: p.root}}
	if p.git != "" {
		m = append(m, runner.Mount{Source: p.git, Target: p.git})
	}
	return m
}

// keptHome makes the home directory that an agent keeps for this project, and returns its path.
func (p *project) keptHome(home, agent string) (string, error) {
	sum := sha256.Sum256([]byte(p.root))
	path := filepath.Join(home, ".demesne/agents", agent, filepath.Base(p.root)+"-"+hex.EncodeToString(sum[:6]))
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
