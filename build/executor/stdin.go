package executor

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"demesne/build/containerfile"
	"demesne/images/archive"
)

// blockSize is the size of a tar header.
const blockSize = 512

// readStdin makes the context of a build whose CONTEXT is "-": the files of a tar, perhaps compressed. Any other input is
// a Containerfile, which it returns; its context is empty.
func readStdin(in io.Reader, dir string) (file io.Reader, err error) {
	plain, err := archive.Decompress(in)
	if err != nil {
		return nil, fmt.Errorf("read stdin: %w", err)
	}
	buffered := bufio.NewReaderSize(plain, containerfile.MaxFile)
	if !isTar(buffered) {
		return buffered, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := unpackContext(tar.NewReader(buffered), root); err != nil {
		return nil, fmt.Errorf("read tar on stdin: %w", err)
	}
	return nil, nil
}

// isTar reports whether a tar begins here. It reads nothing.
func isTar(r *bufio.Reader) bool {
	head, _ := r.Peek(blockSize)
	_, err := tar.NewReader(bytes.NewReader(head)).Next()
	return len(head) == blockSize && (err == nil || !errors.Is(err, tar.ErrHeader) && !errors.Is(err, io.EOF))
}

// unpackContext writes the files of a tar below root. No name and no link leads out of root.
func unpackContext(r *tar.Reader, root *os.Root) error {
	left := &ration{}
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Clean(strings.TrimPrefix(h.Name, "/"))
		if h.Typeflag == tar.TypeXGlobalHeader || name == "." {
			continue
		}
		if err := left.take(h); err != nil {
			return fmt.Errorf("%q: %w", h.Name, err)
		}
		if err := unpackMember(h, r, root, name); err != nil {
			return fmt.Errorf("%q: %w", h.Name, err)
		}
	}
}

func unpackMember(h *tar.Header, r io.Reader, root *os.Root, name string) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	mode := os.FileMode(h.Mode) & 0o777
	switch h.Typeflag {
	case tar.TypeDir:
		if err := root.MkdirAll(name, 0o755); err != nil {
			return err
		}
		return root.Chmod(name, mode|0o700)
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return root.Link(path.Clean(strings.TrimPrefix(h.Linkname, "/")), name)
	case tar.TypeReg:
	default:
		return errors.New("not a file, directory or link")
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Chmod(mode|0o400), f.Close()); err != nil {
		return err
	}
	return root.Chtimes(name, h.ModTime, h.ModTime)
}
