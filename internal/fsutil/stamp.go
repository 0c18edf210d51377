package fsutil

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Stamp identifies the content of a file, or the entries of a directory, without reading them. It follows links. The
// stamp of a missing file has only its path. Every change of a file changes its ctime, which no program can set. Two
// changes within a tick of the kernel's clock have the same ctime, hence [Stamp.Settled].
type Stamp struct {
	Path  string `json:"path"`
	Dev   uint64 `json:"dev,omitempty"`
	Inode uint64 `json:"inode,omitempty"`
	Size  int64  `json:"size,omitempty"`
	CTime int64  `json:"ctime,omitempty"` // in nanoseconds
}

// StampOf returns the current stamp of a file. Take it before reading the file.
func StampOf(path string) (Stamp, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return Stamp{Path: path}, nil
	}
	return Stamp{path, uint64(st.Dev), st.Ino, st.Size, st.Ctim.Nano()}, err
}

// Settled reports whether the file had not changed for two seconds before now, when the stamp was taken. Any later
// change then shows.
func (s Stamp) Settled(now time.Time) bool {
	return s.CTime < now.Add(-2*time.Second).UnixNano()
}

// Holds reports whether the file has not changed since the stamp was taken.
func (s Stamp) Holds() bool {
	now, err := StampOf(s.Path)
	return err == nil && now == s
}
