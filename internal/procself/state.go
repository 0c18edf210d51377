package procself

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// OwnState chooses a private directory for demesne's files if the home directory is / or cannot be written, as in a
// container that was started with a user id, or if it is a checkout, as in some CI jobs. It sets the variable for this
// process and its children. The directory is below $XDG_RUNTIME_DIR, $TMPDIR or /tmp. made is its path if this call made it.
func OwnState(variable string) (made string, err error) {
	home := os.Getenv("HOME")
	if os.Getenv(variable) != "" || homeWorks(home) && !Checkout(home) {
		return "", nil
	}
	var errs []error
	for _, top := range []string{os.Getenv("XDG_RUNTIME_DIR"), os.Getenv("TMPDIR"), "/tmp"} {
		if !filepath.IsAbs(top) {
			continue
		}
		dir, isNew, err := privateBelow(top)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		os.Setenv(variable, dir)
		if isNew {
			made = dir
		}
		return made, nil
	}
	return "", fmt.Errorf("make a directory for demesne's files: %w", errors.Join(errs...))
}

// homeWorks reports whether demesne can keep files in a home directory.
func homeWorks(home string) bool {
	const writable = 2 | 1 // W_OK and X_OK, access(2)
	if !filepath.IsAbs(home) || filepath.Clean(home) == "/" {
		return false
	}
	err := syscall.Access(filepath.Join(home, ".demesne"), writable)
	if errors.Is(err, syscall.ENOENT) {
		err = syscall.Access(home, writable)
	}
	return err == nil
}

// Checkout reports whether a home directory is the top of a project's checkout, and not a person's own: a CI job may have
// HOME there. It has .git, is not this user's home in /etc/passwd, and demesne keeps nothing there. An empty .demesne is a
// mount point, which the command line makes.
func Checkout(home string) bool {
	if !filepath.IsAbs(home) {
		return false
	}
	if _, err := os.Lstat(filepath.Join(home, ".git")); err != nil {
		return false
	}
	if own, err := os.ReadDir(filepath.Join(home, ".demesne")); len(own) > 0 || err != nil && !errors.Is(err, os.ErrNotExist) {
		return false
	}
	u, err := user.LookupId(strconv.Itoa(os.Geteuid()))
	if err != nil { // this user has no entry
		return true
	}
	theirs, err1 := filepath.EvalSymlinks(u.HomeDir)
	here, err2 := filepath.EvalSymlinks(home)
	return err2 == nil && (err1 != nil || theirs != here)
}

// names bounds how many names privateBelow tries: another user may have taken some.
const names = 10

// privateBelow makes a directory that only this user can reach, or finds it.
func privateBelow(top string) (dir string, made bool, err error) {
	real, err := filepath.EvalSymlinks(top)
	if err != nil {
		return "", false, err
	}
	for n := range names {
		dir = filepath.Join(real, "demesne-state-"+strconv.Itoa(os.Geteuid()))
		if n > 0 {
			dir += "-" + strconv.Itoa(n)
		}
		err = os.Mkdir(dir, 0o700)
		if err == nil {
			return dir, true, nil
		}
		if st, serr := os.Lstat(dir); errors.Is(err, os.ErrExist) && serr == nil && private(st) {
			return dir, false, nil
		}
		if !errors.Is(err, os.ErrExist) {
			break
		}
	}
	return "", false, err
}

func private(st os.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && st.IsDir() && int(sys.Uid) == os.Geteuid() && st.Mode().Perm()&0o077 == 0
}
