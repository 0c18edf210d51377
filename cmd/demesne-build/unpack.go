package main

import (
	"archive/tar"
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"demesne/images/archive"
	"demesne/images/build"
)

// isURL reports whether a source of ADD is not in the context.
func isURL(source string) bool {
	return strings.Contains(source, "://") || strings.HasPrefix(source, "git@")
}

// addLocal sends a source of ADD. A local tar, perhaps compressed, is unpacked, unless --unpack=false is given.
func (s *stage) addLocal(w *tar.Writer, c *build.Copy, name string, p *placing) error {
	info, err := s.context.root.Stat(name)
	if err != nil {
		return fmt.Errorf("read context: %w", err)
	}
	if !info.Mode().IsRegular() || c.Unpack != nil && !*c.Unpack {
		return s.context.send(w, name, p)
	}
	f, err := s.context.root.Open(name)
	if err != nil {
		return fmt.Errorf("read context: %w", err)
	}
	defer f.Close()
	plain, err := archive.Decompress(f)
	if err != nil { // not an archive, though it begins like one
		return s.context.send(w, name, p)
	}
	defer plain.Close()
	in := bufio.NewReaderSize(plain, 256<<10)
	if !isTar(in) {
		return s.context.send(w, name, p)
	}
	if err := repack(w, tar.NewReader(in), p); err != nil {
		return fmt.Errorf("unpack %q: %w", name, err)
	}
	return nil
}

// repack copies the members of an archive below the destination. Their names cannot leave it, and of their headers only
// what an image has is kept.
func repack(w *tar.Writer, r *tar.Reader, p *placing) error {
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		name := inside(h.Name)
		if name != strings.TrimPrefix(path.Clean(h.Name), "/") {
			return fmt.Errorf("%q: the name leads out of the archive", h.Name)
		}
		out := &tar.Header{
			Typeflag: h.Typeflag, Linkname: h.Linkname, Size: h.Size, Mode: h.Mode & 0o7777,
			Uid: h.Uid, Gid: h.Gid, ModTime: h.ModTime, Format: tar.FormatPAX,
		}
		out.Mode = p.chmod.mode(out.Mode, h.Typeflag == tar.TypeDir)
		switch h.Typeflag {
		case tar.TypeGNUSparse:
			out.Typeflag = tar.TypeReg
		case tar.TypeLink:
			out.Linkname, out.Size = inside(h.Linkname), 0
		}
		if out.Name = p.rename(member{&tar.Header{Name: name}, ".", false}); out.Name == "" {
			continue
		}
		if err := w.WriteHeader(out); err != nil {
			return fmt.Errorf("%q: %w", h.Name, err)
		}
		if out.Typeflag != tar.TypeReg {
			continue
		}
		if _, err := io.Copy(w, r); err != nil {
			return fmt.Errorf("%q: %w", h.Name, err)
		}
	}
}

// inside returns a name relative to the root that it cannot leave.
func inside(name string) string {
	return cmp.Or(strings.TrimPrefix(path.Clean("/"+name), "/"), ".")
}
