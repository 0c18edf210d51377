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

// A job must have a result even if the disk fills up while it runs. So the space for the result is reserved when the
// job is created.
const (
	roomFile = "room"
	roomSize = 64 << 10 // bytes; most results are smaller
)

// wordsSize is the space that a log keeps for the first words of a job's process on another machine, in bytes.
const wordsSize = 4 << 10

func reserve(dir string) error { return allocate(filepath.Join(dir, roomFile), 0, roomSize) }

// allocate makes a file with space. It reserves nothing on a file system without fallocate(2).
func allocate(path string, mode uint32, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.Fallocate(int(f.Fd()), mode, 0, size)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("reserve space for the result: %w", err)
	}
	return nil
}

// writeResult writes the result of a job as a whole, or fails with fs.ErrExist. Of several concurrent writers, one
// uses the reserved space and the others use free disk space.
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
