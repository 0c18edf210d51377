// Package tarball copies a file or a directory as a tar stream. The source directory may change during the copy, and
// the stream may come from an untrusted sender.
//
//	host                                        sandbox
//	Pack(w, root, "data", …)  ──stdin──▶   demesne-init put PATH: Unpack
//	Unpack(r, root, …)        ◀──stdout──  demesne-init get PATH: Pack
//
// Both sides run this code. Inside, it runs as the sandbox's user, confined like any command there. So the host never
// opens a path of the sandbox, and only receives a stream, with limits (F2, F17, P16). On the host every
// name is used below an os.Root, and no file is created through a link. Links, devices and set-user-id bits never
// leave the sandbox.
//
// Holes of a file are not sent (content.go) and are holes in the copy. The host's side enforces [Limits] on each
// copy. A stream that was truncated or exceeds the limits leaves nothing in the sandbox. Files get their names only
// when all of them have arrived ([Part]).
//
// The package imports no other package of demesne, because PID 1 of every sandbox links it.
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

// maxDepth bounds the number of directories above a file.
const maxDepth = 255

// Options configures [Unpack].
type Options struct {
	Links  bool   // create symbolic links unchanged, and without As hard links too; otherwise they are skipped
	As     string // replaces the first component of each name, unless empty
	Limits Limits
}

// Unpack creates the entries of the stream below root. It skips all but files, directories and, with Links, links.
// A file gets its name when it is complete, see place.go, and replaces an existing file by rename. An existing
// directory is merged with. Files and directories keep their modification times.
func Unpack(r io.Reader, root *os.Root, o Options) (Report, error) {
	u := &unpacker{root: root, Options: o, left: o.Limits.budget()}
	tr := newReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return u.did, u.setDirTimes()
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
	dirs []dirTime
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
	m := meta{fs.FileMode(h.Mode)&0o777 | 0o600, h.ModTime}
	switch h.Typeflag {
	case tar.TypeDir:
		m.mode |= 0o100
		return u.directory(name, m)
	case tar.TypeReg:
		c, err := readContent(h, r, &u.left)
		if err != nil {
			return err
		}
		return u.file(name, m, c, u.Limits.Meter.reader(r))
	case tar.TypeSymlink:
		if u.Links {
			return u.replace(name, func(temp string) error { return u.root.Symlink(h.Linkname, temp) })
		}
	case tar.TypeLink:
		if u.Links && u.As == "" {
			return u.hardLink(name, h.Linkname)
		}
	}
	u.did.leave(name, leftKind(h))
	return nil
}

// hardLink gives an earlier file a second name. Neither leaves the root.
func (u *unpacker) hardLink(name, to string) error {
	first, err := clean(to)
	if err != nil {
		return err
	}
	return u.replace(name, func(temp string) error { return u.root.Link(first, temp) })
}

// clean validates the name of an entry and returns it relative to a root.
func clean(name string) (string, error) {
	c := path.Clean(name)
	if name == "" || path.IsAbs(name) || c == ".." || strings.HasPrefix(c, "../") || strings.ContainsRune(name, 0) || strings.Count(c, "/") > maxDepth {
		return "", errBadName
	}
	return c, nil
}
