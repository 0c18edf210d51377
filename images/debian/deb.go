package debian

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"
)

// arMagic begins an ar archive; arHeader is the size of a member's header.
const arMagic, arHeader = "!<arch>\n", 60

// maxDictionary bounds the memory that xz asks for, in bytes. Debian's packages ask for at most 64 MiB.
const maxDictionary = 128 << 20

// dataOf returns the tar with the files of a .deb, which is an ar archive.
func dataOf(deb []byte) (io.Reader, error) {
	rest, ok := bytes.CutPrefix(deb, []byte(arMagic))
	if !ok {
		return nil, errors.New("not an ar archive")
	}
	for len(rest) >= arHeader {
		name := strings.TrimRight(string(rest[:16]), " /")
		size, err := strconv.ParseInt(strings.TrimSpace(string(rest[48:58])), 10, 64)
		if err != nil || size < 0 || size > int64(len(rest)-arHeader) {
			return nil, errors.New("damaged ar archive")
		}
		content := rest[arHeader : arHeader+size]
		if kind, ok := strings.CutPrefix(name, "data.tar"); ok {
			return decompress(kind, content)
		}
		rest = rest[min(int64(len(rest)), arHeader+size+size%2):]
	}
	return nil, errors.New("no data.tar in it")
}

func decompress(kind string, content []byte) (io.Reader, error) {
	in := bytes.NewReader(content)
	switch kind {
	case "":
		return in, nil
	case ".gz":
		return gzip.NewReader(in)
	case ".xz":
		return xz.NewReader(bufio.NewReader(in), maxDictionary)
	case ".zst":
		return zstd.NewReader(in, zstd.WithDecoderConcurrency(1))
	}
	return nil, fmt.Errorf("data.tar%s: unknown compression", kind)
}

// unpack writes the files of a .deb below root, except those that skip reports. Owners and special modes are left to dpkg,
// which unpacks the package again. No name leads out of root.
func unpack(deb []byte, root *os.Root, skip func(name string) bool) error {
	data, err := dataOf(deb)
	if err != nil {
		return err
	}
	r := tar.NewReader(data)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if name == "" || skip(name) {
			continue
		}
		if err := unpackOne(h, r, root, name); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
}

func unpackOne(h *tar.Header, r io.Reader, root *os.Root, name string) error {
	mode := fs.FileMode(h.Mode) & 0o777
	if h.Typeflag == tar.TypeDir {
		if err := root.Mkdir(name, mode); !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		if st, err := root.Stat(name); err == nil && st.IsDir() {
			return nil // a link such as /bin, which is there
		}
		return err
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return root.Link(strings.TrimPrefix(path.Clean("/"+h.Linkname), "/"), name)
	case tar.TypeReg:
	default:
		return nil
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Chmod(mode), f.Close())
}
