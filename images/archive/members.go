package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/images"
	"demesne/internal/fsutil"
)

// maxMembers is the maximum number of files in an image archive. An archive of 500 layers has about 1500.
const maxMembers = 100_000

// A member is one file of a layout or archive, read in place.
type member struct {
	*io.SectionReader
	io.Closer
}

// files opens the files of an image by slash-separated name. For a missing file, open returns fs.ErrNotExist.
type files interface {
	open(name string) (*member, error)
	io.Closer
}

// directory is a layout on disk.
type directory struct{ *os.Root }

func (d directory) open(name string) (*member, error) {
	f, err := d.Root.Open(name)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%q is not a regular file", name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &member{io.NewSectionReader(f, 0, st.Size()), f}, nil
}

// tarball is an archive whose headers have been read.
type tarball struct {
	file    *os.File
	members map[string]span
	links   map[string]string // older versions of `docker save` wrote equal layers as links
}

type span struct{ offset, size int64 }

// openTarball finds the members of an archive. It decompresses a compressed archive into a file without a name in
// dir. It fails with [ErrDense], or with ENOSPC if dir is too full.
func openTarball(ctx context.Context, file, dir string) (*tarball, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	f, err = plainFile(ctx, f, dir)
	if errors.Is(err, unix.ENOSPC) {
		return nil, fmt.Errorf("decompress %q: %w", file, err)
	}
	if err != nil {
		return nil, &InvalidError{file, err}
	}
	t := &tarball{file: f, members: map[string]span{}, links: map[string]string{}}
	if err := t.find(ctx); err != nil {
		f.Close()
		return nil, &InvalidError{file, err}
	}
	return t, nil
}

// plainFile returns f, or a file with its decompressed content. It closes f unless it returns it.
func plainFile(ctx context.Context, f *os.File, dir string) (*os.File, error) {
	r, format, err := decompress(fsutil.ContextReader(ctx, f))
	if err != nil {
		f.Close()
		return nil, err
	}
	defer r.Close()
	if format == plain {
		_, err := f.Seek(0, io.SeekStart)
		if err != nil {
			f.Close()
		}
		return f, err
	}
	defer f.Close()
	out, err := temporary(dir)
	if err != nil {
		return nil, err
	}
	if _, err = io.Copy((&images.Space{Dir: dir}).Writer(out), r); err == nil {
		_, err = out.Seek(0, io.SeekStart)
	}
	if err != nil {
		out.Close()
		return nil, err
	}
	return out, nil
}

// find reads the headers. The tar reader skips contents by seeking, so after Next the file offset is at the member's
// first byte.
func (t *tarball) find(ctx context.Context) error {
	r := tar.NewReader(t.file)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		name := path.Clean(strings.TrimPrefix(h.Name, "/"))
		if len(t.members)+len(t.links) > maxMembers {
			return fmt.Errorf("more than %d files", maxMembers)
		}
		if err := t.add(name, h); err != nil {
			return err
		}
	}
}

func (t *tarball) add(name string, h *tar.Header) error {
	switch h.Typeflag {
	case tar.TypeReg:
		at, err := t.file.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		t.members[name] = span{at, h.Size}
	case tar.TypeSymlink:
		t.links[name] = path.Join(path.Dir(name), h.Linkname)
	case tar.TypeLink:
		t.links[name] = path.Clean(h.Linkname)
	}
	return nil
}

func (t *tarball) open(name string) (*member, error) {
	name = path.Clean(name)
	if to, ok := t.links[name]; ok {
		name = to
	}
	at, ok := t.members[name]
	if !ok {
		return nil, fmt.Errorf("%q: %w", name, fs.ErrNotExist)
	}
	return &member{io.NewSectionReader(t.file, at.offset, at.size), io.NopCloser(nil)}, nil
}

func (t *tarball) Close() error { return t.file.Close() }

// read reads a whole file of at most limit bytes.
func read(f files, name string, limit int64) ([]byte, error) {
	m, err := f.open(name)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if m.Size() > limit {
		return nil, fmt.Errorf("%q has %d bytes, more than %d", name, m.Size(), limit)
	}
	b := make([]byte, m.Size())
	_, err = io.ReadFull(m, b)
	return b, err
}
