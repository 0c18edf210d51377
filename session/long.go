package session

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// longDir is the directory, below the output root and the sandbox's id, that receives long outputs of commands in a
// persistent sandbox. It has the newest longKept of them: a model that runs one loud command after the other must not
// fill the host's disk.
const (
	longDir  = "stdout"
	longKept = 8
)

// keepLong links the file of a long stream into that directory, which no sandbox can reach, and returns its path. It
// returns "" if there is no file. It ignores failures: the command's result matters more.
func (u outputs) keepLong(id string, st *stream) string {
	if st.file == nil {
		return ""
	}
	at, dir, err := u.openLong(id)
	if err != nil {
		st.place(nil, "")
		return ""
	}
	defer dir.Close()
	name := time.Now().UTC().Format("20060102-150405.000000000") + ".log"
	if st.place(&outDir{dir: dir}, name) != nil {
		return ""
	}
	dropOld(dir)
	return filepath.Join(at, name)
}

// openLong makes and opens the directory of a sandbox.
func (u outputs) openLong(id string) (at string, dir *os.File, err error) {
	root, err := u.make()
	if err != nil {
		return "", nil, err
	}
	r, err := os.OpenRoot(root)
	if err != nil {
		return "", nil, err
	}
	defer r.Close()
	name := path.Join(id, longDir)
	if err := r.MkdirAll(name, ownerOnly); err != nil {
		return "", nil, err
	}
	if err := u.mark(root, id); err != nil {
		return "", nil, err
	}
	dir, err = r.OpenFile(name, unix.O_DIRECTORY, 0)
	return filepath.Join(root, name), dir, err
}

// dropOld removes all but the newest files of the directory. Their names sort by time.
func dropOld(dir *os.File) {
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries[:max(len(entries)-longKept, 0)] {
		unix.Unlinkat(int(dir.Fd()), e.Name(), 0)
	}
}
