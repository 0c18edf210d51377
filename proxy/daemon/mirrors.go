package daemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/proxy/policy"
	"demesne/runner"
)

// host locates the configuration of the caller's tools.
type host struct {
	home string
	env  func(string) string
	root string // prefix of every path; set only by tests
}

func thisHost() host {
	home, _ := os.UserHomeDir()
	return host{home: home, env: os.Getenv}
}

// mirror is a server that a tool is configured to use.
type mirror struct {
	tool, from string // from is a file or a variable
	rule       policy.Rule
}

// registryOf returns the kind and the host of a mirror whose packages have times.
func registryOf(m mirror) (policy.Registry, string) {
	name, ok := m.rule.Name()
	if !ok {
		return "", ""
	}
	kinds := map[string]policy.Registry{"npm": policy.NPMRegistry, "pip": policy.PyPIRegistry, "go": policy.GoRegistry, "cargo": policy.CratesSparse}
	return kinds[m.tool], name.String()
}

// most bounds how many bytes of a file are read. Configuration is written by hand.
const most = 1 << 20

// mirrors reads the configuration of the host's tools. notes lists the files that could not be read or parsed;
// found has the mirrors of all others.
func (h host) mirrors() (found []mirror, notes []string) {
	take := func(t hostTool, from string, rules []policy.Rule, err error) {
		for _, r := range rules {
			found = append(found, mirror{t.Name, from, r})
		}
		if err != nil {
			notes = append(notes, text.SafeLine(fmt.Sprintf("%s: %v", from, err)))
		}
	}
	for _, t := range hostTools() {
		for _, path := range h.files(t) {
			text, err := readSome(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			var rules []policy.Rule
			if err == nil {
				rules, err = t.Mirrors(text)
			}
			take(t, strings.TrimPrefix(path, h.root), rules, err)
		}
		for _, name := range t.Env {
			rules, err := t.Value(h.env(name))
			take(t, "$"+name, rules, err)
		}
	}
	return found, notes
}

// sources returns what mirrors reads. ok is false if a variable is set: its value may hold a credential, so it is not
// for keeping.
func (h host) sources() (s runner.RuleSources, ok bool) {
	var paths []string
	for _, t := range hostTools() {
		paths = append(paths, h.files(t)...)
		for _, f := range t.Files {
			if strings.Contains(f, "*") {
				paths = append(paths, h.root+filepath.Dir(f))
			}
		}
		for _, name := range t.Env {
			if h.env(name) != "" {
				return s, false
			}
		}
		s.Env = append(s.Env, t.Env...)
	}
	s.Files, ok = stamps(paths)
	return s, ok
}

// stamps returns the stamps of files. ok is false if a change of one might not show.
func stamps(paths []string) (all []fsutil.Stamp, ok bool) {
	now := time.Now()
	for _, path := range paths {
		s, err := fsutil.StampOf(path)
		if err != nil || !s.Settled(now) {
			return nil, false
		}
		all = append(all, s)
	}
	return all, true
}

// files returns the paths of t's configuration, with "~" and "*" expanded.
func (h host) files(t hostTool) (paths []string) {
	for _, f := range t.Files {
		if rest, ok := strings.CutPrefix(f, "~/"); ok {
			if h.home == "" {
				continue
			}
			f = filepath.Join(h.home, rest)
		}
		f = h.root + f
		if !strings.Contains(f, "*") {
			paths = append(paths, f)
			continue
		}
		some, _ := filepath.Glob(f)
		paths = append(paths, some...)
	}
	return paths
}

func readSome(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // O_NONBLOCK: opening a FIFO must not wait for a writer
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", errors.New("not a regular file")
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if len(b) > most {
		return "", fmt.Errorf("more than %d bytes", most)
	}
	return string(b), err
}
