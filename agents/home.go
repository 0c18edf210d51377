package agents

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"

	"demesne/internal/fsutil"
)

// Seed writes the files of l.Home, and the copies of the user's settings, into a home directory, as its programs expect them. A JSON file that exists keeps
// its other keys, so a kept home keeps history and settings. Any other file is replaced, except the files in l.Keep.
//
// Another session may be using the home. A file is replaced in one step, and only if its content changes. Lists keep
// their elements, so that what an earlier session needs stays: claude looks up its key in a list while it runs.
//
// A sandbox wrote the existing files, so they may be anything: Seed follows no link out of root, opens no FIFO, and
// gives up on the content of a file that is not JSON.
func (l *Launch) Seed(root *os.Root) error {
	for _, c := range l.copies {
		if err := replace(root, c.name, c.data, c.perm); err != nil {
			return fmt.Errorf("seed home: %w", err)
		}
	}
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
	if strings.HasSuffix(name, ".json") {
		data = merged(root, name, data)
	}
	return replace(root, name, data, 0o600)
}

// replace writes a file, unless it has this content and mode already.
func replace(root *os.Root, name string, data []byte, perm fs.FileMode) error {
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	if unchanged(root, name, data, perm) {
		return nil
	}
	tmp := name + ".demesne"
	if err := root.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return root.Rename(tmp, name)
}

// openSeeded opens a small regular file of the home.
func openSeeded(root *os.Root, name string) *os.File {
	f, err := fsutil.OpenRegular(root, name)
	if err != nil {
		return nil
	}
	if st, err := f.Stat(); err != nil || st.Size() > seedLimit {
		f.Close()
		return nil
	}
	return f
}

// unchanged reports whether a file has this content and mode already.
func unchanged(root *os.Root, name string, data []byte, perm fs.FileMode) bool {
	f := openSeeded(root, name)
	if f == nil {
		return false
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Mode().Perm() != perm {
		return false
	}
	old, err := io.ReadAll(io.LimitReader(f, int64(len(data))+1))
	return err == nil && bytes.Equal(old, data)
}

// merged returns data with the keys that only the existing file has.
func merged(root *os.Root, name string, data []byte) []byte {
	f := openSeeded(root, name)
	if f == nil {
		return data
	}
	defer f.Close()
	var old, fresh map[string]any
	if exactly(io.LimitReader(f, seedLimit), &old) != nil || exactly(bytes.NewReader(data), &fresh) != nil {
		return data
	}
	out, err := json.Marshal(merge(old, fresh))
	if err != nil {
		return data
	}
	return append(out, '\n')
}

// exactly parses JSON without rounding numbers.
func exactly(r io.Reader, into *map[string]any) error {
	dec := json.NewDecoder(r)
	dec.UseNumber()
	return dec.Decode(into)
}

// merge adds the values of from to into. Objects and lists are merged, everything else is replaced.
func merge(into, from map[string]any) map[string]any {
	if into == nil {
		into = map[string]any{}
	}
	for k, v := range from {
		switch v := v.(type) {
		case map[string]any:
			if old, ok := into[k].(map[string]any); ok {
				into[k] = merge(old, v)
				continue
			}
		case []any:
			if old, ok := into[k].([]any); ok {
				into[k] = union(old, v)
				continue
			}
		}
		into[k] = v
	}
	return into
}

// seedList bounds a merged list: each session may add an element.
const seedList = 64

// union appends to old the elements of add that it lacks, and returns the last seedList elements.
func union(old, add []any) []any {
	for _, v := range add {
		same := func(o any) bool { return reflect.DeepEqual(o, v) }
		if !slices.ContainsFunc(old, same) {
			old = append(old, v)
		}
	}
	return old[max(0, len(old)-seedList):]
}
