package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Seed writes the files of l.Home into a home directory, as its programs expect them. A JSON file that exists keeps
// its other keys, so a kept home keeps history and settings. Any other file is replaced, except those of l.Keep.
//
// A sandbox wrote the existing files, so they may be anything: Seed follows no link out of root, opens no FIFO, and
// gives up on the content of a file that is not JSON.
func (l *Launch) Seed(root *os.Root) error {
	for name, data := range l.Home {
		if _, err := root.Lstat(name); err == nil && slices.Contains(l.Keep, name) {
			continue
		}
		if err := seed(root, name, data); err != nil {
			return fmt.Errorf("seed home: %w", err)
		}
	}
	return nil
}

// seedLimit bounds the JSON files that are merged.
const seedLimit = 16 << 20

func seed(root *os.Root, name string, data []byte) error {
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	if strings.HasSuffix(name, ".json") {
		data = merged(root, name, data)
	}
	tmp := name + ".demesne"
	if err := root.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return root.Rename(tmp, name)
}

// merged returns data with the keys that only the existing file has.
func merged(root *os.Root, name string, data []byte) []byte {
	if st, err := root.Lstat(name); err != nil || !st.Mode().IsRegular() || st.Size() > seedLimit {
		return data
	}
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return data
	}
	defer f.Close()
	var old, fresh map[string]any
	dec := json.NewDecoder(f)
	dec.UseNumber()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || dec.Decode(&old) != nil || json.Unmarshal(data, &fresh) != nil {
		return data
	}
	out, err := json.Marshal(merge(old, fresh))
	if err != nil {
		return data
	}
	return append(out, '\n')
}

// merge adds the values of from to into. Objects are merged, everything else is replaced.
func merge(into, from map[string]any) map[string]any {
	if into == nil {
		into = map[string]any{}
	}
	for k, v := range from {
		a, isObject := into[k].(map[string]any)
		if b, ok := v.(map[string]any); ok && isObject {
			into[k] = merge(a, b)
		} else {
			into[k] = v
		}
	}
	return into
}
