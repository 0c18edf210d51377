package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A job that runs while the disk fills up has a result all the same: the space for it is taken when the job is made.
const (
	roomFile = "room"
	roomSize = 64 << 10 // most results have less
)

// reserve takes the space. Where a file system cannot promise any, there is none.
func reserve(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, roomFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.Fallocate(int(f.Fd()), 0, 0, roomSize)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("reserve space for the result: %w", err)
	}
	return nil
}

// writeResult writes the result of a job, whole, or fails with fs.ErrExist. One of those who come at once has the space that was
// reserved, and the others what is left on the disk.
func writeResult(dir string, e ended) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	temp := filepath.Join(dir, fmt.Sprintf(".result-%016x", rand.Uint64()))
	if err := os.Rename(filepath.Join(dir, roomFile), temp); err != nil {
		return writeJSON(dir, "result.json", e)
	}
	defer os.Remove(temp)
	f, err := os.OpenFile(temp, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Truncate(int64(len(b))), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Link(temp, filepath.Join(dir, "result.json"))
}
