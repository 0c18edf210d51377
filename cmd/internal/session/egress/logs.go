package egress

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// logDir is where decisions are written down: beside the output directories, so that no
// sandbox has it unless its caller gives it the whole output root.
const logDir = ".egress"

// LogFile is the place for the decisions of the sandbox whose output directory has that
// name. The directory is there when it returns.
func LogFile(root, name string) (string, error) {
	dir := filepath.Join(root, logDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make directory of egress logs: %w", err)
	}
	return filepath.Join(dir, name+logSuffix), nil
}

const logSuffix = ".jsonl"

// PruneLogs removes logs below root that nobody has written to since before, and says how
// many. The log of a sandbox that lives is locked, and stays.
func PruneLogs(root string, before time.Time) (removed int, err error) {
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

// removeLog removes a log that it could lock: see runner.Egress.
func removeLog(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	return os.Remove(path)
}
