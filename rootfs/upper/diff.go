package upper

import (
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// A Change is one file that a sandbox added, modified or removed.
type Change struct {
	Path string // relative to /, any bytes but NUL
	Kind byte   // 'A', 'M' or 'D'
}

// Limits of one Diff.
const (
	diffMax  = 20000
	diffPath = unix.PathMax
	diffText = 2 << 20 // bytes of all paths

	diffDepth = 1 << 14 // levels
)

// Diff compares the uppers, the earliest first, with an image's layers, the lowest first. It reports a directory
// only if it is new or replaced another file. It reports a file in an upper as modified, whatever its contents. If
// all is false, there were too many changes to report them all. Sandboxes may be writing to the last upper.
func Diff(image, uppers []*os.File) (changes []Change, all bool, err error) {
	d := differ{found: map[string]found{}}
	for i, f := range uppers {
		if err := d.layer(i, f); err != nil {
			return nil, false, fmt.Errorf("compare files: %w", err)
		}
	}
	for name, f := range d.found {
		if kind := d.kind(image, name, f); kind != 0 {
			changes = append(changes, Change{name, kind})
		}
	}
	runtime.KeepAlive(image)
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return changes, !d.cut, nil
}

// found describes a name in the highest upper that contains it.
type found struct {
	layer  int
	dir    bool
	gone   bool // a whiteout
	opaque bool // a directory that hides the one below it
}

type differ struct {
	found map[string]found
	text  int
	cut   bool
}

func (d *differ) layer(i int, top *os.File) error {
	w := &walk{most: diffDepth}
	w.visit = func(at int, name string, st *unix.Statx_t) error {
		if name == "" {
			return nil
		}
		full := w.path(name)
		if d.text += len(full); len(d.found) >= diffMax || d.text > diffText {
			d.cut, w.enough = true, true
			return nil
		}
		if len(full) > diffPath {
			d.cut = true
			return nil
		}
		kind := st.Mode & unix.S_IFMT
		f := found{layer: i, dir: kind == unix.S_IFDIR, gone: kind == unix.S_IFCHR && st.Rdev_major == 0 && st.Rdev_minor == 0}
		f.opaque = f.dir && opaque(at, name)
		if before, ok := d.found[full]; ok && f.dir && before.dir && !f.opaque {
			f.layer, f.opaque = before.layer, before.opaque // merged: it hides what the earlier one hid
		}
		d.found[full] = f
		return nil
	}
	return w.run(top)
}

// path returns the path of a name in the directory that is being read.
func (w *walk) path(name string) string {
	var b strings.Builder
	for _, l := range w.levels[1:] {
		b.WriteString(l.name)
		b.WriteByte('/')
	}
	return b.String() + name
}

// kind classifies one name; 0 means no change to report.
func (d *differ) kind(image []*os.File, name string, f found) byte {
	for up := path.Dir(name); up != "."; up = path.Dir(up) {
		if a, ok := d.found[up]; ok && a.layer > f.layer && (!a.dir || a.opaque) {
			return 0 // hidden by a later upper
		}
	}
	existed, wasDir := lookUp(image, name)
	switch {
	case f.gone && existed:
		return 'D'
	case f.gone:
		return 0
	case !existed:
		return 'A'
	case f.dir && wasDir && !f.opaque:
		return 0
	}
	return 'M'
}

// lookUp reports whether an image has a name, as overlayfs would show it. The highest layer that has the name, or
// hides it, decides.
func lookUp(image []*os.File, name string) (exists, dir bool) {
	for _, layer := range slices.Backward(image) {
		fd, err := fsutil.Openat2(int(layer.Fd()), name, &unix.OpenHow{
			Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
		})
		if err == nil {
			st, err := stat(fd, "")
			unix.Close(fd)
			kind := st.Mode & unix.S_IFMT
			return err == nil && !(kind == unix.S_IFCHR && st.Rdev_major == 0 && st.Rdev_minor == 0), kind == unix.S_IFDIR
		}
		if err != unix.ENOENT || hides(layer, name) { // ENOTDIR, ELOOP: a parent is not a directory here
			return false, false
		}
	}
	return false, false
}

// hides reports whether an opaque directory of a layer above name hides lower layers.
func hides(layer *os.File, name string) bool {
	for up := path.Dir(name); up != "."; up = path.Dir(up) {
		fd, err := fsutil.Openat2(int(layer.Fd()), path.Dir(up), &unix.OpenHow{
			Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
		})
		if err != nil {
			continue
		}
		is := opaque(fd, path.Base(up))
		unix.Close(fd)
		if is {
			return true
		}
	}
	return false
}
