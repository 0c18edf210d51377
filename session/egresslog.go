package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/runner"
	"demesne/runner/ipc"
)

// logDir is the directory of egress logs. It lies beside the output directories, so that no sandbox can reach
// it unless its caller mounts the whole output root.
const logDir = ".egress"

// logFile returns the path of the egress log of the sandbox whose output directory is name. It creates the
// log's directory.
func (u outputs) logFile(name string) (string, error) {
	root, err := u.root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, logDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make directory of egress logs: %w", err)
	}
	return filepath.Join(dir, name+logSuffix), nil
}

const logSuffix = ".jsonl"

// tidyLog removes an egress log that is empty, and returns the path of any other.
func tidyLog(path string) string {
	if info, err := os.Lstat(path); err == nil && info.Size() == 0 && os.Remove(path) == nil {
		return ""
	}
	return path
}

// pruneLogs removes logs below root that were last written before the given time, and returns their number. The
// log of a running sandbox is locked, and is kept.
func pruneLogs(root string, before time.Time) (removed int, err error) {
	dir := filepath.Join(root, logDir)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	for _, e := range entries {
		info, gone := e.Info()
		if gone != nil || !info.Mode().IsRegular() || !strings.HasSuffix(e.Name(), logSuffix) || info.ModTime().After(before) {
			continue
		}
		switch one := removeLog(filepath.Join(dir, e.Name())); {
		case one == nil:
			removed++
		case !errors.Is(one, unix.EWOULDBLOCK):
			err = errors.Join(err, one)
		}
	}
	if err != nil {
		err = fmt.Errorf("prune egress logs: %w", err)
	}
	return removed, err
}

// removeLog removes a log, unless its sandbox holds the lock: see runner.Egress.
func removeLog(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := flock.Try(f, flock.Exclusive); err != nil {
		return err
	}
	return os.Remove(path)
}

// deniedVariable names the variable of the operator's list of denied commands: regular expressions, separated by commas.
// The word standard stands for standardDenied.
//
// The list is a courtesy, and no boundary: a script, a variable or another spelling evades it. The sandbox is the boundary.
const deniedVariable = "DEMESNE_DENIED_COMMANDS"

// standardDenied are commands that do not work in a sandbox, and that a model may waste its time with.
var standardDenied = []string{`\bdocker\b`, `\bmount\b`, `\bmodprobe\b`, `\bnsenter\b`}

// denied returns an error if the operator denies a command. An unset list costs one look at the environment.
func (o *Options) denied(cmd *runner.Command) error {
	list := o.Getenv(deniedVariable)
	if list == "" {
		return nil
	}
	for _, line := range slices.Concat([][]string{cmd.Argv}, cmd.Else) {
		text := strings.Join(line, " ")
		for _, pattern := range deniedPatterns(list) {
			find, err := regexp.Compile(pattern)
			if err != nil {
				return ipc.Errorf(ipc.CodeInvalid, "%s: %q is not a regular expression", deniedVariable, pattern)
			}
			if find.MatchString(text) {
				return ipc.Errorf(ipc.CodeInvalid, "command denied: it matches %s of %s, the operator's list", pattern, deniedVariable)
			}
		}
	}
	return nil
}

// deniedPatterns splits a list at its commas. A comma in braces, as in a{2,3}, belongs to its expression.
func deniedPatterns(list string) (all []string) {
	depth, from := 0, 0
	add := func(s string) {
		switch s = strings.TrimSpace(s); s {
		case "":
		case "standard":
			all = append(all, standardDenied...)
		default:
			all = append(all, s)
		}
	}
	for i, c := range list {
		switch {
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ',' && depth <= 0:
			add(list[from:i])
			from = i + 1
		}
	}
	add(list[from:])
	return all
}
