// Package fds has what Go has not of files by descriptor and name. No link is followed.
package openat

import (
	"encoding/binary"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Path is the name by which calls that take none but names reach what fd is, as long as it is open.
func Path(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// Mkdir makes a directory where there is none. It stands in for what is no directory.
func Mkdir(at int, name string, mode uint32) error {
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

// Readlink reads a link; links longer than a page do not exist.
func Readlink(at int, name string) (string, error) {
	var buf [unix.PathMax]byte
	n, err := unix.Readlinkat(at, name, buf[:])
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// An Entry is what getdents64(2) says of one name.
type Entry struct {
	Name string
	Type byte  // DT_*, DT_UNKNOWN where the file system does not say
	Next int64 // where reading goes on after it
}

// Entries parses one buffer of getdents64(2), without "." and "..".
func Entries(buf []byte) []Entry {
	var out []Entry
	for len(buf) >= 19 {
		size := int(binary.NativeEndian.Uint16(buf[16:]))
		if size < 19 || size > len(buf) {
			break
		}
		name, _, _ := strings.Cut(string(buf[19:size]), "\x00")
		if name != "." && name != ".." {
			out = append(out, Entry{name, buf[18], int64(binary.NativeEndian.Uint64(buf[8:]))})
		}
		buf = buf[size:]
	}
	return out
}
