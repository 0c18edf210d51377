package session

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/runner"
)

// keptRules is the last answer of the helper, which takes longer to start than a sandbox from the pool. The file is
// the caller's own, like the configuration that the rules come from: a program that can write one can write the other.
type keptRules struct {
	path    string             // of the file; empty: nothing is kept
	Program fsutil.Stamp       `json:"program"`
	Mode    string             `json:"mode"`
	File    string             `json:"file,omitempty"` // absolute
	Rules   runner.EgressRules `json:"rules"`
}

// keptName is the name of the file in ~/.demesne.
const keptName = "egress-rules.json"

// keptMost bounds the size of the file.
const keptMost = 1 << 20

// recalled returns the kept answer for the arguments, or one without rules.
func recalled(program, mode, file string) *keptRules {
	asked := &keptRules{Mode: mode}
	path, err := fsutil.StateDir(keptName)
	if err != nil || !filepath.IsAbs(path) {
		return asked
	}
	if asked.Program, err = fsutil.StampOf(program); err != nil {
		return asked
	}
	if file != "" {
		if asked.File, err = filepath.Abs(file); err != nil {
			return asked
		}
	}
	asked.path = path
	kept := keptRules{}
	if text, err := fsutil.ReadPrivate(asked.path, keptMost); err != nil || json.Unmarshal(text, &kept) != nil {
		return asked
	}
	if kept.Program == asked.Program && kept.Mode == mode && kept.File == asked.File {
		asked.Rules = kept.Rules
	}
	return asked
}

// holds reports whether the helper would give the same answer now.
func (k *keptRules) holds() bool {
	s := k.Rules.Sources
	return s != nil &&
		!slices.ContainsFunc(s.Env, func(name string) bool { return os.Getenv(name) != "" }) &&
		!slices.ContainsFunc(s.Files, func(f fsutil.Stamp) bool { return !f.Holds() })
}

// keep replaces the file. A failure costs only time, and a process that is killed leaves nothing behind: the new file
// has no name until it is complete.
func (k *keptRules) keep() {
	if k.path == "" || k.Rules.Sources == nil {
		return
	}
	text, err := json.Marshal(k)
	if err != nil || os.MkdirAll(filepath.Dir(k.path), 0o700) != nil {
		return
	}
	f, err := os.OpenFile(filepath.Dir(k.path), os.O_WRONLY|unix.O_TMPFILE, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	if _, err := f.Write(text); err == nil {
		os.Remove(k.path)
		unix.Linkat(unix.AT_FDCWD, fsutil.FDPath(int(f.Fd())), unix.AT_FDCWD, k.path, unix.AT_SYMLINK_FOLLOW)
	}
}
