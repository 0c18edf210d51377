package upper

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// Texts are a file before and after an edit. The content of a link is its target.
type Texts struct {
	Old, New         []byte
	OldMode, NewMode uint32 // as st_mode; 0: there is no file
	Unshown          string // why there are no contents; empty: there are
	State            State  // of the caller's file
}

// textMost bounds a file whose content Texts reads.
const textMost = 1 << 20

// Texts reads what an edit changes. It reads only regular files and links, and no file that is binary or large.
func (o *Over) Texts(e Edit) (t Texts, err error) {
	low, err := o.lower(e.Path)
	if err != nil {
		return t, err
	}
	t.State = stateOf(low)
	if low != nil {
		t.OldMode = uint32(low.Mode)
	}
	if e.Kind != 'D' {
		up, err := statBelow(o.Up, e.Path)
		if err != nil || up == nil {
			return t, errors.Join(err, errMoved)
		}
		t.NewMode = uint32(up.Mode)
		if t.New, err = contentOf(o.Up, e.Path, up, &t); err != nil {
			return t, err
		}
	}
	t.Old, err = contentOf(o.Dir, e.Path, low, &t)
	return t, err
}

// contentOf reads a file, or says in t why it does not.
func contentOf(dir *os.File, file string, st *unix.Statx_t, t *Texts) ([]byte, error) {
	switch kindOf(st) {
	case unix.S_IFLNK:
		parent, err := openBelow(int(dir.Fd()), path.Dir(file), unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return nil, err
		}
		defer unix.Close(parent)
		target, err := fsutil.ReadlinkAt(parent, path.Base(file))
		return []byte(target), err
	case unix.S_IFREG:
	default:
		return nil, nil
	}
	if st.Size > textMost {
		t.Unshown = fmt.Sprintf("larger than %d KiB", textMost>>10)
		return nil, nil
	}
	fd, err := openBelow(int(dir.Fd()), file, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close()
	if now, err := stat(fd, ""); err != nil || idOf(now) != idOf(st) {
		return nil, errors.Join(err, errMoved)
	}
	text := make([]byte, st.Size)
	n, err := f.ReadAt(text, 0)
	if n < len(text) {
		return nil, errors.Join(err, errMoved)
	}
	if bytes.IndexByte(text, 0) >= 0 {
		t.Unshown = "binary"
		return nil, nil
	}
	return text, nil
}

// ApplySeen makes an edit that a person agreed to, who saw the caller's file in a state of [Texts]. It returns ErrChanged if
// the file is another one by now. content, unless nil, replaces the sandbox's file's content. The edit then remains for what
// the two still differ in.
func (o *Over) ApplySeen(e Edit, seen State, content []byte) error {
	known, ok := o.States[e.Path]
	e.Changed, o.States[e.Path] = false, seen
	err := o.apply(e, false, content)
	if err != nil && ok {
		o.States[e.Path] = known
	}
	return err
}
