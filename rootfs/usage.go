package rootfs

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// maxLinked is how many files with several names Usage remembers; more are counted once a name.
const maxLinked = 1 << 17

// Usage returns the bytes allocated to everything below a directory, a file with several names
// once. It stops as soon as they are more than limit. The tree may change meanwhile: what is moved
// or hidden while it is walked may be missed, so the result is a lower bound of what a hostile
// process holds; the error tells only that the directory itself could not be read.
func Usage(dir *os.File, limit int64) (bytes int64, err error) {
	linked := map[fileID]struct{}{}
	w := walk{visit: func(_ int, _ string, st *unix.Statx_t) error {
		if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			if _, ok := linked[idOf(st)]; ok {
				return nil
			}
			if len(linked) < maxLinked {
				linked[idOf(st)] = struct{}{}
			}
		}
		bytes += int64(st.Blocks) * 512
		if bytes > limit {
			return errStop
		}
		return nil
	}}
	err = w.run(dir)
	runtime.KeepAlive(dir)
	if err != nil && w.failed == 0 {
		return bytes, fmt.Errorf("measure %q: %w", dir.Name(), err)
	}
	return bytes, nil
}
