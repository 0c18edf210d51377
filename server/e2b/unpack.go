package e2b

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"demesne/server"
	"demesne/session"
)

// workDir holds the directories of builds.
const workDir = "work"

// workspace is the directory of a build. What is unpacked there counts until its end.
type workspace struct {
	dir    string
	ledger *ledger
	held   Stored
}

// take counts what is about to be written.
func (w *workspace) take(n Stored) error {
	err := w.ledger.take(n)
	if err == nil {
		w.held = w.held.plus(n)
	}
	return err
}

// close removes the directory.
func (w *workspace) close() error {
	err := os.RemoveAll(w.dir)
	if err == nil {
		w.ledger.add(w.held.negative())
	}
	return err
}

// Bounds of one archive, also without a quota.
const (
	maxUnpacked = 1 << 20 // files and directories
	maxDepth    = 100
)

// unpacking is an archive that is unpacked.
type unpacking struct {
	root *os.Root
	take func(Stored) error
	left Stored
}

// unpack writes a gzipped tar below a new directory, and returns the names at its top. os.Root keeps hostile names and
// links inside. take is asked before each write.
func unpack(dir string, from io.Reader, take func(Stored) error) (top []string, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	z, err := gzip.NewReader(from)
	if err != nil {
		return nil, err
	}
	u := &unpacking{root, take, Stored{Bytes: server.MaxContext, Files: maxUnpacked}}
	seen := map[string]bool{}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return top, nil
		}
		if err != nil {
			return nil, err
		}
		name := path.Clean("/" + h.Name)[1:]
		if name == "" {
			continue
		}
		if first, _, _ := strings.Cut(name, "/"); !seen[first] {
			seen[first], top = true, append(top, first)
		}
		if err := u.charge(name, h); err != nil {
			return nil, err
		}
		if err := unpackEntry(root, name, h, t); err != nil {
			return nil, err
		}
	}
}

// charge counts an entry, with the directories above it that are missing. The names of links count too.
func (u *unpacking) charge(name string, h *tar.Header) error {
	if strings.Count(name, "/") >= maxDepth {
		return fmt.Errorf("%w: more than %d directories deep", session.ErrInvalid, maxDepth)
	}
	n := missing(u.root, path.Dir(name)).plus(Stored{Bytes: entryCost, Files: 1})
	if h.Size > u.left.Bytes {
		return fmt.Errorf("%w: more than 4 GiB", session.ErrInvalid)
	}
	if n.Files > u.left.Files {
		return fmt.Errorf("%w: more than %d files", session.ErrInvalid, maxUnpacked)
	}
	u.left = u.left.plus(Stored{Bytes: -h.Size, Files: -n.Files})
	n.Bytes += h.Size
	return u.take(n)
}

func unpackEntry(root *os.Root, name string, h *tar.Header, from io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	mode := os.FileMode(h.Mode & 0o777)
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, mode|0o700)
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode|0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, io.LimitReader(from, h.Size))
		return errors.Join(err, f.Chmod(mode), f.Close())
	}
	return nil
}
