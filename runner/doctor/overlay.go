package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"demesne/internal/procself"
	"demesne/runner"
	"demesne/runner/doctor/diagnose"
)

// probeOverlay tests overlayfs on its own tmpfs.
func probeOverlay(_ context.Context, e *Env) []answer {
	dir := e.Dir
	if dir == "" {
		dir = os.TempDir()
	}
	err := inMountNS(func() error {
		if err := unix.Mount("demesne-probe", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=1m"); err != nil {
			return fmt.Errorf("mount tmpfs: %w", err)
		}
		return useOverlay(dir)
	})
	if err != nil {
		return []answer{e.judge(runner.Degraded, "writes over an image go to a disk", overlayDiagnosis(err), err)}
	}
	return []answer{held("tmpfs")}
}

// probeOverlayDisk tests overlayfs on the file system with demesne's files.
func probeOverlayDisk(_ context.Context, e *Env) []answer {
	dir, err := tempDir(disks(e.RunDir), prefix(e.Key))
	switch {
	case err != nil:
		return []answer{{status: runner.Missing, why: err.Error()}}
	case dir == "":
		return []answer{{}}
	}
	// The thread's mount ends shortly after the thread. It is in another mount namespace and does not prevent
	// the removal.
	defer os.RemoveAll(dir)
	if err := inMountNS(func() error { return useOverlay(dir) }); err != nil {
		return []answer{e.judge(runner.Degraded, "tmpfs or copies", overlayDiagnosis(err), err)}
	}
	return []answer{held(filepath.Dir(dir))}
}

// errMountNS marks errors about the thread's mount namespace instead of overlayfs.
var errMountNS = errors.New("make mount namespace")

func overlayDiagnosis(err error) diagnosis {
	if errors.Is(err, errMountNS) {
		return diagnose.Userns
	}
	return diagnose.Overlay
}

// tempDir makes a directory in the first of dirs that allows it. It returns "" if dirs is empty.
func tempDir(dirs []string, prefix string) (string, error) {
	var errs []error
	for _, d := range dirs {
		dir, err := os.MkdirTemp(d, prefix)
		if err == nil {
			return dir, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// inMountNS runs f on a thread with its own mount namespace. Mounts do not propagate out of it.
func inMountNS(f func() error) error {
	return procself.OnDisposableThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("%w: %w", errMountNS, err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("%w: make mounts private: %w", errMountNS, err)
		}
		return f()
	})
}

// useOverlay makes a tree below dir and applies the operations of sandboxes on images. Each can fail with EIO,
// even on a successful mount, if overlayfs cannot write its user.overlay.* attributes.
func useOverlay(dir string) error {
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, d := range []string{"lower/dir", "upper", "work", "merged"} {
		if err := os.MkdirAll(at(d), 0o700); err != nil {
			return err
		}
	}
	for _, f := range []string{"lower/file", "lower/dir/file"} {
		if err := os.WriteFile(at(f), []byte("lower"), 0o600); err != nil {
			return err
		}
	}
	options := "userxattr,lowerdir=" + at("lower") + ",upperdir=" + at("upper") + ",workdir=" + at("work")
	if err := unix.Mount("overlay", at("merged"), "overlay", 0, options); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	defer unix.Unmount(at("merged"), unix.MNT_DETACH)
	for _, s := range []struct {
		what string
		do   func() error
	}{
		{"write new file", func() error { return os.WriteFile(at("merged/new"), []byte("new"), 0o600) }},
		{"write to lower file", func() error { return appendTo(at("merged/file")) }},
		{"rename lower file", func() error { return os.Rename(at("merged/file"), at("merged/renamed")) }},
		{"remove lower file", func() error { return unix.Unlink(at("merged/dir/file")) }},
		{"remove lower directory", func() error { return unix.Rmdir(at("merged/dir")) }},
		{"make it again, empty", func() error { return os.Mkdir(at("merged/dir"), 0o700) }},
		{"read back", func() error { return readBack(at("merged"), at("lower")) }},
	} {
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	return nil
}

func appendTo(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("+upper")
	return errors.Join(err, f.Close())
}

// readBack fails unless merged shows the changes and lower shows none.
func readBack(merged, lower string) error {
	inside, err := os.ReadDir(filepath.Join(merged, "dir"))
	if err != nil || len(inside) > 0 {
		return errors.Join(fs.ErrExist, err)
	}
	for path, want := range map[string]string{
		filepath.Join(merged, "renamed"): "lower+upper",
		filepath.Join(lower, "file"):     "lower",
	} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			return fmt.Errorf("%q is %q: %w", path, got, errors.Join(fs.ErrInvalid, err))
		}
	}
	return nil
}
