package fsutil

import (
	"encoding/binary"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzEntries feeds the parser data that no kernel returns.
func FuzzEntries(f *testing.F) {
	f.Add([]byte{})
	f.Add(dirent("a", 24, unix.DT_REG))
	f.Add(append(dirent(".", 24, unix.DT_DIR), dirent("long name", 32, unix.DT_LNK)...))
	f.Add(dirent("short", 3, 0))
	f.Fuzz(func(t *testing.T, buf []byte) {
		for _, e := range ParseDirents(buf) {
			if e.Name == "." || e.Name == ".." || strings.Contains(e.Name, "\x00") {
				t.Errorf("name %q", e.Name)
			}
		}
	})
}

func dirent(name string, size uint16, typ byte) []byte {
	buf := make([]byte, max(int(size), 19))
	binary.NativeEndian.PutUint64(buf[8:], 77)
	binary.NativeEndian.PutUint16(buf[16:], size)
	buf[18] = typ
	copy(buf[19:], name)
	return buf
}

func TestEntries(t *testing.T) {
	buf := append(dirent("..", 24, unix.DT_DIR), dirent("name", 32, unix.DT_REG)...)
	if got := ParseDirents(buf); len(got) != 1 || got[0] != (Dirent{"name", unix.DT_REG, 77}) {
		t.Errorf("got %v", got)
	}
}
