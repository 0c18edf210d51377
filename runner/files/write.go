package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

func write(w Write) (*Written, error) {
	mode := fs.FileMode(0o644)
	if w.Private {
		mode = 0o600
	}
	created, err := replace(w.Path, mode, w.Content)
	return &Written{Bytes: int64(len(w.Content)), Created: created}, err
}

// replace sets the content of the file at path and keeps its mode. It follows a link to the target. A new file
// gets mode, and missing parent directories. The change is complete or absent, unless swap writes in place.
func replace(path string, mode fs.FileMode, content []byte) (created bool, err error) {
	real, err := filepath.EvalSymlinks(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if st, err := os.Lstat(path); err == nil && st.Mode()&fs.ModeSymlink != 0 {
			return false, fmt.Errorf("%s: is a link to a file that does not exist", path)
		}
		real, created = path, true
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return false, err
		}
	case err != nil:
		return false, err
	default:
		info, err := os.Stat(real)
		if err != nil {
			return false, err
		}
		if !info.Mode().IsRegular() {
			return false, fmt.Errorf("%s: is not a regular file", path)
		}
		mode = info.Mode().Perm()
	}
	return created, swap(real, mode, content)
}

// swap writes a temporary file beside path and renames it. If that is impossible, as beside a file that is
// itself a mount point, swap writes in place.
func swap(path string, mode fs.FileMode, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".demesne-*")
	if err != nil {
		there := inPlace(path, content)
		var why *fs.PathError
		if errors.Is(there, fs.ErrNotExist) && errors.As(err, &why) {
			why.Path = path
			return why
		}
		return there
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		return nil
	}
	os.Remove(f.Name())
	if _, ok := errors.AsType[*os.LinkError](err); ok {
		return inPlace(path, content)
	}
	return err
}

func inPlace(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// editMax bounds the size of an edited file, in bytes.
const editMax = 16 << 20

func edit(e Edit) (*Edited, error) {
	f, info, err := open(e.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Size() > editMax {
		return nil, fmt.Errorf("%s: %d bytes are too large to edit (at most %d)", e.Path, info.Size(), editMax)
	}
	content, err := io.ReadAll(io.LimitReader(f, editMax))
	if err != nil {
		return nil, err
	}
	text, did, err := substitute(string(content), e)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Path, err)
	}
	_, err = replace(e.Path, 0o644, []byte(text))
	return did, err
}
