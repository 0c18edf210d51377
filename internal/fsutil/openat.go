package fsutil

import (
	"encoding/binary"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// FDPath returns a path that leads to the open file fd, for calls that take only paths. It is valid while fd is open.
func FDPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// MkdirAt makes a directory unless it exists. It replaces a file that is not a directory.
func MkdirAt(at int, name string, mode uint32) error {
	err := unix.Mkdirat(at, name, mode)
	if err == unix.EEXIST {
		if err = unix.Unlinkat(at, name, 0); err == unix.EISDIR {
			return nil
		}
		if err == nil {
			err = unix.Mkdirat(at, name, mode)
		}
	}
	return err
}

// ReadlinkAt reads a link. Links longer than a page (PATH_MAX) do not exist.
func ReadlinkAt(at int, name string) (string, error) {
	var buf [unix.PathMax]byte
	n, err := unix.Readlinkat(at, name, buf[:])
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// A Dirent is one name as returned by getdents64(2).
type Dirent struct {
	Name string
	Type byte  // DT_*; DT_UNKNOWN if the file system does not report it
	Next int64 // offset at which to continue reading after this entry
}

// ParseDirents parses one buffer of getdents64(2), and leaves out "." and "..".
func ParseDirents(buf []byte) []Dirent {
	var out []Dirent
	for len(buf) >= 19 {
		size := int(binary.NativeEndian.Uint16(buf[16:]))
		if size < 19 || size > len(buf) {
			break
		}
		name, _, _ := strings.Cut(string(buf[19:size]), "\x00")
		if name != "." && name != ".." {
			out = append(out, Dirent{name, buf[18], int64(binary.NativeEndian.Uint64(buf[8:]))})
		}
		buf = buf[size:]
	}
	return out
}

// RawReader reads from a descriptor of a regular file. Unlike an os.File it does not own the descriptor.
type RawReader int

func (r RawReader) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(int(r), p)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}
