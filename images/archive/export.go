package archive

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"time"

	"demesne/images"
	"demesne/images/oci"
	"demesne/internal/fsutil"
)

// Export writes the root file system of an image as one tar archive. It has the files that overlayfs
// would show with the layers mounted over each other. Which entries remain visible is known after the
// last layer only. So each layer is decompressed and verified once, into a file without a name in the
// store, and written from there.
func Export(ctx context.Context, store *images.Store, img *images.Image, w io.Writer) error {
	m := newMerge()
	plain := make([]*spool, len(img.Layers))
	defer func() {
		for _, s := range plain {
			s.close()
		}
	}()
	for i, l := range img.Layers {
		plain[i] = newSpool(store)
		err := readLayer(ctx, store, l, func(r io.Reader) error { return m.layer(tar.NewReader(io.TeeReader(r, plain[i]))) })
		if err != nil {
			return err
		}
	}
	out := tar.NewWriter(w)
	for i, l := range img.Layers {
		err := plain[i].read(ctx, store, l, func(r io.Reader) error { return m.write(i, tar.NewReader(r), out) })
		if err != nil {
			return err
		}
	}
	return out.Close()
}

// spool keeps a decompressed layer until it is written. Without room for it, the layer is decompressed again.
type spool struct {
	*os.File // nil: no room
	to       io.Writer
}

func newSpool(store *images.Store) *spool {
	f, err := temporary(store.Dir())
	if err != nil {
		return &spool{}
	}
	return &spool{f, (&images.Space{Dir: store.Dir()}).Writer(f)}
}

// Write never fails, so that a full disk does not end the export.
func (s *spool) Write(b []byte) (int, error) {
	if s.File == nil {
		return len(b), nil
	}
	if _, err := s.to.Write(b); err != nil {
		s.close()
	}
	return len(b), nil
}

// read calls do with the layer.
func (s *spool) read(ctx context.Context, store *images.Store, l oci.Layer, do func(io.Reader) error) error {
	if s.File == nil {
		return readLayer(ctx, store, l, do)
	}
	defer s.close()
	_, err := s.Seek(0, io.SeekStart)
	if err == nil {
		err = do(bufio.NewReaderSize(fsutil.ContextReader(ctx, s.File), 256<<10))
	}
	if err != nil {
		return fmt.Errorf("read layer %s: %w", l.Digest, err)
	}
	return nil
}

// close releases the disk space. s may be nil.
func (s *spool) close() {
	if s != nil && s.File != nil {
		s.File.Close()
		s.File = nil
	}
}

// write writes the visible entries of a layer.
func (m *merge) write(layer int, r *tar.Reader, out *tar.Writer) error {
	for entry := 0; ; entry++ {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		h = m.last(h, place{layer, entry})
		if h == nil {
			continue
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(out, r); err != nil {
			return err
		}
	}
}

// last returns the header to write for an entry, or nil if the entry is not visible. If a file's own
// name is gone but a hard link to it remains, the file is written under the link's name.
func (m *merge) last(h *tar.Header, at place) *tar.Header {
	name := clean(h.Name)
	if h.Typeflag == tar.TypeLink {
		file, leads := m.origin[at]
		first := m.first(file)
		if !leads || !m.left(name, at) || first == "" || first == name {
			return nil
		}
		return rewrite(h, name, first)
	}
	if !m.left(name, at) {
		if name = m.first(at); name == "" {
			return nil
		}
	}
	return rewrite(h, name, h.Linkname)
}

// rewrite returns a portable header. It has a relative name, and keeps extended attributes but no other PAX
// records.
func rewrite(h *tar.Header, name, link string) *tar.Header {
	if name == "" {
		name = "."
	}
	n := &tar.Header{
		Format: tar.FormatPAX, Typeflag: h.Typeflag, Name: name, Linkname: link, Mode: h.Mode & 0o7777,
		Uid: h.Uid, Gid: h.Gid, ModTime: h.ModTime.Truncate(time.Second), Devmajor: h.Devmajor, Devminor: h.Devminor,
		PAXRecords: maps.Clone(h.PAXRecords),
	}
	maps.DeleteFunc(n.PAXRecords, func(k, _ string) bool { return !strings.HasPrefix(k, "SCHILY.xattr.") })
	switch h.Typeflag {
	case tar.TypeDir:
		n.Name += "/"
	case tar.TypeReg, tar.TypeGNUSparse:
		n.Typeflag, n.Size, n.Linkname = tar.TypeReg, h.Size, ""
	}
	return n
}
