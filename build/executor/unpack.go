package executor

import (
	"archive/tar"
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"path"
	"strings"

	"demesne/build/containerfile"
	"demesne/images/archive"
	"demesne/internal/fsutil"
	"demesne/runner/tarball"
)

// addLocal sends a source of ADD. A local tar, perhaps compressed, is unpacked, unless --unpack=false is given.
func (s *stage) addLocal(ctx context.Context, w *tar.Writer, sum hash.Hash, c *containerfile.Copy, name string, p *placing) error {
	info, err := s.context.root.Stat(name)
	if err != nil {
		return fmt.Errorf("read context: %w", err)
	}
	if !info.Mode().IsRegular() || c.Unpack != nil && !*c.Unpack {
		return s.context.send(ctx, w, sum, name, p)
	}
	if p.rename(member{&tar.Header{Name: name}, name, true}) == "" {
		return nil
	}
	f, err := openSame(s.context.root, name, info)
	if err != nil {
		return fmt.Errorf("read %q: %w", name, err)
	}
	defer f.Close()
	whole := sha256.New()
	read := io.TeeReader(fsutil.ContextReader(ctx, f), whole)
	plain, err := archive.Decompress(read)
	if err != nil { // not an archive, though it begins like one
		return s.context.send(ctx, w, sum, name, p)
	}
	defer plain.Close()
	in := bufio.NewReaderSize(plain, 256<<10)
	if !isTar(in) {
		return s.context.send(ctx, w, sum, name, p)
	}
	r := &ration{free: info.Size()}
	if err := repack(w, tar.NewReader(in), p, r); err != nil {
		return fmt.Errorf("unpack %q: %w", name, err)
	}
	if _, err := io.Copy(io.Discard, read); err != nil { // what is behind the archive belongs to the digest
		return fmt.Errorf("read %q: %w", name, err)
	}
	return s.context.walk(ctx, name, func(m *found) error { return m.add(sum, whole) })
}

// ration bounds the zeros that the sparse members of a tar stand for: a kilobyte can claim an exabyte.
type ration struct {
	free int64 // bytes of the archive, if known
	used int64
}

// sparseFree and sparseRatio are the bounds of dense archives, see [archive.ErrDense].
const sparseFree, sparseRatio = 512 << 20, 256

// take counts a member, which the archive may describe as sparse.
func (r *ration) take(h *tar.Header) error {
	sparse := h.Typeflag == tar.TypeGNUSparse
	for key := range h.PAXRecords {
		sparse = sparse || strings.HasPrefix(key, "GNU.sparse.")
	}
	if !sparse {
		return nil
	}
	if h.Size > math.MaxInt64-r.used {
		return errSparse
	}
	if r.used += h.Size; r.used > sparseFree+sparseRatio*min(r.free, 1<<40) {
		return errSparse
	}
	return nil
}

var errSparse = errors.New("its sparse files are far larger than the archive")

// repack copies the members of an archive below the destination. Their names cannot leave it, and of their headers only
// what an image has is kept.
func repack(w *tar.Writer, r *tar.Reader, p *placing, left *ration) error {
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
		if err := left.take(h); err != nil {
			return fmt.Errorf("%q: %w", h.Name, err)
		}
		name := inside(h.Name)
		if name != cmp.Or(strings.TrimPrefix(path.Clean(h.Name), "/"), ".") {
			return fmt.Errorf("%q: the name leads out of the archive", h.Name)
		}
		out := &tar.Header{
			Typeflag: h.Typeflag, Linkname: h.Linkname, Size: h.Size, Mode: h.Mode & 0o7777,
			Uid: h.Uid, Gid: h.Gid, ModTime: h.ModTime, Format: tar.FormatPAX,
		}
		out.Mode = p.chmod.mode(out.Mode, h.Typeflag == tar.TypeDir)
		for record, value := range h.PAXRecords {
			if _, ok := tarball.AttrOf(record); ok {
				if out.PAXRecords == nil {
					out.PAXRecords = map[string]string{}
				}
				out.PAXRecords[record] = value
			}
		}
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

// inside returns a name relative to the root, without a way out of the root.
func inside(name string) string {
	return cmp.Or(strings.TrimPrefix(path.Clean("/"+name), "/"), ".")
}
