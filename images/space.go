package images

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A Space keeps writers from filling the file system of a directory. The zero Dir is not ready.
type Space struct {
	Dir  string
	left int64 // that may be written before the file system is asked again
}

const (
	spaceStride = 64 << 20
	leastMargin = 32 << 20  // what stays free on a disk that is not tiny,
	mostMargin  = 256 << 20 // and on a large one
)

// Take counts bytes that are about to be written. The error is [unix.ENOSPC] if too little would stay free.
func (s *Space) Take(n int64) error {
	if s.left -= n; s.left >= 0 {
		return nil
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(s.Dir, &fs); err != nil {
		return fmt.Errorf("measure free space: %w", err)
	}
	size := int64(min(fs.Blocks, 1<<40)) * fs.Bsize
	margin := min(max(size/100, leastMargin), mostMargin, size/16)
	free := int64(min(fs.Bavail, 1<<40))*fs.Bsize - margin
	if n > free {
		return fmt.Errorf("write %d bytes to %q: %w", n, s.Dir, os.NewSyscallError("statfs", unix.ENOSPC))
	}
	s.left = min(free, max(spaceStride, n)) - n
	return nil
}

// Writer counts what f is given. Take's error comes before anything is written.
func (s *Space) Writer(f *os.File) *SpaceWriter { return &SpaceWriter{s, f} }

// A SpaceWriter writes as long as there is space.
type SpaceWriter struct {
	space *Space
	f     *os.File
}

func (w *SpaceWriter) Write(p []byte) (int, error) {
	if err := w.space.Take(int64(len(p))); err != nil {
		return 0, err
	}
	return w.f.Write(p)
}
