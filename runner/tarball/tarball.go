// Package tarball copies a file or a directory as a tar stream: out of a directory that
// somebody else may be changing, and into one from a stream that somebody else made.
//
//	host                                        sandbox
//	Pack(w, root, "data", …)  ──stdin──▶   demesne-init put PATH: Unpack
//	Unpack(r, root, …)        ◀──stdout──  demesne-init get PATH: Pack
//
// Both sides are this code. Inside, it runs as the sandbox's user, under everything that
// confines a command there; so the host never opens a path of the sandbox's, and what it
// gets is a stream with limits (escapes.md F2, F17, P16). On the host every name is used
// below an os.Root, a file is never created through a link, and links, devices and
// set-user-id bits do not come out.
//
// Holes of a file are not in the stream (content.go), and are holes in the copy. What a copy may hold is bounded by
// [Limits], on whichever side is the host's. A stream that was cut, or exceeds them, leaves nothing inside: its files
// get their names when all of them are there ([Part]).
//
// The package imports nothing of ours: PID 1 of every sandbox has it.
package tarball

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// maxDepth bounds the directories above a file.
const maxDepth = 255

// Options say how to unpack.
type Options struct {
	Links  bool   // create symbolic links as they are; otherwise they are skipped
	As     string // takes the place of each name's first component, unless empty
	Limits Limits
}

// Unpack creates what the stream holds below root. What is neither file, directory nor,
// with Links, symbolic link is skipped. A file has a name once it is whole, see place.go; one that exists is
// replaced by rename. A directory that exists is added to.
func Unpack(r io.Reader, root *os.Root, o Options) (Report, error) {
	u := &unpacker{root: root, Options: o, left: o.Limits.budget()}
	tr := newReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return u.did, nil
		}
		if err != nil {
			return u.did, fmt.Errorf("unpack: %w", err)
		}
		if err := u.entry(h, tr); err != nil {
			return u.did, fmt.Errorf("unpack %q: %w", h.Name, err)
		}
	}
}

type unpacker struct {
	Options
	root *os.Root
	left budget
	did  Report
}

func (u *unpacker) entry(h *tar.Header, r io.Reader) error {
	name, err := clean(h.Name)
	if err != nil {
		return err
	}
	if u.As != "" {
		_, rest, _ := strings.Cut(name, "/")
		name = path.Join(u.As, rest)
	}
	if err := u.left.entry(); err != nil {
		return err
	}
	mode := fs.FileMode(h.Mode) & 0o777
	switch h.Typeflag {
	case tar.TypeDir:
		return u.root.MkdirAll(name, mode|0o700)
	case tar.TypeReg:
		c, err := readContent(h, r, &u.left)
		if err != nil {
			return err
		}
		return u.file(name, mode|0o600, c, r)
	case tar.TypeSymlink:
		if u.Links {
			return u.replace(name, func(temp string) error { return u.root.Symlink(h.Linkname, temp) })
		}
	}
	u.did.leave(name, leftKind(h))
	return nil
}

// clean is the name of an entry as one below a root.
func clean(name string) (string, error) {
	c := path.Clean(name)
	if name == "" || path.IsAbs(name) || c == ".." || strings.HasPrefix(c, "../") || strings.ContainsRune(name, 0) || strings.Count(c, "/") > maxDepth {
		return "", ErrBadName
	}
	return c, nil
}
