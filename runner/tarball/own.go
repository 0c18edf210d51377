package tarball

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Own is a verb of [Inside] that gives a directory with all its files to a user. Its argument is an [Owning] in JSON.
const Own = "own"

// Owning names a directory of the sandbox, and its new owner.
type Owning struct {
	Path string `json:"path"` // absolute
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
}

// own changes the owner where it differs. A sandbox without that id keeps the files as they are.
func own(arg string) error {
	var o Owning
	if err := json.Unmarshal([]byte(arg), &o); err != nil {
		return fmt.Errorf("read arguments: %w", err)
	}
	return filepath.WalkDir(o.Path, func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == o.UID && int(st.Gid) == o.GID {
			return nil
		}
		if err := os.Lchown(at, o.UID, o.GID); errors.Is(err, unix.EINVAL) {
			return fs.SkipAll
		} else if err != nil {
			return err
		}
		if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 && info.Mode()&fs.ModeSymlink == 0 {
			return os.Chmod(at, info.Mode()) // the change of owner cleared these bits
		}
		return nil
	})
}
