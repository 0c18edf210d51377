package images

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A Space keeps writers from filling the file system of a directory. Dir must be set.
type Space struct {
	Dir  string
	left int64 // bytes that may be written before the next statfs(2)
}

const (
	spaceStride = 64 << 20
	leastMargin = 32 << 20  // minimum free space, except on disks under 512 MiB
	maxMargin   = 256 << 20 // limit for the free space kept on a large disk
)

// take counts n bytes that are about to be written. It returns [unix.ENOSPC] if too little space would stay
// free.
func (s *Space) take(n int64) error {
	if s.left -= n; s.left >= 0 {
		return nil
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(s.Dir, &fs); err != nil {
		return fmt.Errorf("measure free space: %w", err)
	}
	size := int64(min(fs.Blocks, 1<<40)) * fs.Bsize
	margin := min(max(size/100, leastMargin), maxMargin, size/16)
	free := int64(min(fs.Bavail, 1<<40))*fs.Bsize - margin
	if n > free {
		return fmt.Errorf("write %d bytes to %q: %w", n, s.Dir, os.NewSyscallError("statfs", unix.ENOSPC))
	}
	s.left = min(free, max(spaceStride, n)) - n
	return nil
}

// Writer returns a writer to f that counts its bytes. If Take fails, nothing is written.
func (s *Space) Writer(f *os.File) *SpaceWriter { return &SpaceWriter{s, f} }

// A SpaceWriter writes to a file while the file system has enough free space.
type SpaceWriter struct {
	space *Space
	f     *os.File
}

func (w *SpaceWriter) Write(p []byte) (int, error) {
	if err := w.space.take(int64(len(p))); err != nil {
		return 0, err
	}
	return w.f.Write(p)
}
