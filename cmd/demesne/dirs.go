package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"demesne/cmd/internal/outputs"
	"demesne/runner/client"
)

// ownerOnly is the mode of directories made for outputs. If other users could reach them, a sandbox on an image
// could not be allowed to set the setuid bits that packages come with.
const ownerOnly = 0o700

// outDir is the directory at /out. undo removes what prepareOut made; it never removes a directory that is not
// empty.
type outDir struct {
	path string // absolute, without symbolic links
	made []string
	lock *os.File // marks the directory as in use while this process lives
}

// prepareOut checks the directory that --out names, and creates it if it is missing. Without --out it creates a
// new directory under the output root.
func prepareOut(arg string) (*outDir, error) {
	if arg == "" {
		return freshOut()
	}
	abs, err := filepath.Abs(arg)
	if err != nil {
		return nil, fmt.Errorf("output %q: %w", arg, err)
	}
	d := &outDir{}
	if err := d.mkdirAll(abs, ownerOnly); err != nil {
		d.undo()
		return nil, fmt.Errorf("output %q: %w", arg, err)
	}
	if d.path, err = writableDir(abs); err != nil {
		d.undo()
		return nil, fmt.Errorf("output %q: %w", arg, err)
	}
	d.lock, _ = outputs.Hold(d.path) // on file systems without locks, the sandbox itself marks the directory as in use
	return d, nil
}

func freshOut() (*outDir, error) {
	root, err := client.OutputRoot()
	if err != nil {
		return nil, elsewhere(fmt.Errorf("output: %w", err))
	}
	d := &outDir{}
	if err := d.mkdirAll(root, ownerOnly); err != nil {
		d.undo()
		return nil, elsewhere(fmt.Errorf("output root %q: %w", root, err))
	}
	real, err := writableDir(root)
	if err != nil {
		d.undo()
		return nil, elsewhere(fmt.Errorf("output root %q: %w", root, err))
	}
	for {
		d.path = filepath.Join(real, freshName(time.Now(), rand.Uint32()))
		err := os.Mkdir(d.path, ownerOnly)
		if err == nil {
			d.made = append(d.made, d.path)
			d.lock, _ = outputs.Hold(d.path)
			return d, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			d.undo()
			return nil, elsewhere(fmt.Errorf("output root %q: %w", root, reason(err)))
		}
	}
}

// elsewhere adds a hint to an error of the output root: how to choose another directory.
func elsewhere(err error) error {
	return hinted(err, "set --out DIR for this run, or DEMESNE_OUTPUT_ROOT for all runs")
}

// freshName returns a unique name that sorts by time.
func freshName(t time.Time, random uint32) string {
	return fmt.Sprintf("%s-%08x", t.UTC().Format("20060102-150405"), random)
}

// name returns a name that no other run has.
func (d *outDir) name() string {
	if len(d.made) > 0 && d.made[len(d.made)-1] == d.path {
		return filepath.Base(d.path)
	}
	return freshName(time.Now(), rand.Uint32())
}

// mkdirAll is os.MkdirAll that records the directories it creates.
func (d *outDir) mkdirAll(path string, mode fs.FileMode) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	if parent := filepath.Dir(path); parent != path {
		if err := d.mkdirAll(parent, mode); err != nil {
			return err
		}
	}
	err := os.Mkdir(path, mode)
	if err == nil {
		d.made = append(d.made, path)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return reason(err)
}

func (d *outDir) undo() {
	for i := len(d.made) - 1; i >= 0; i-- {
		if unix.Rmdir(d.made[i]) != nil {
			break // in use by another process
		}
	}
	d.made = nil
}

// workspaceDir checks the directory that --workspace names.
func workspaceDir(arg string) (string, error) {
	if arg == "" {
		return "", nil
	}
	abs, err := filepath.Abs(arg)
	if err == nil {
		abs, err = writableDir(abs)
	}
	if err != nil {
		return "", fmt.Errorf("workspace %q: %w", arg, err)
	}
	return abs, nil
}

// writableDir resolves path, and checks that it is a directory that the caller can write to. It rejects the
// root directory.
func writableDir(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", reason(err)
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", reason(err)
	}
	if err := printable(real); err != nil {
		return "", err
	}
	switch {
	case !info.IsDir():
		return "", errors.New("is not a directory")
	case real == "/":
		return "", errors.New("is the root directory")
	}
	if err := unix.Faccessat(unix.AT_FDCWD, real, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return "", fmt.Errorf("is not writable: %w", err)
	}
	return real, nil
}
