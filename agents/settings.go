package agents

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"demesne/internal/fsutil"
)

// The bounds of the user's settings: names, and bytes of all files.
const (
	settingsNames = 4096
	settingsBytes = 16 << 20
)

// settingsCopy reads parts of settings.
type settingsCopy struct {
	files   []copied
	secret  []fs.FileInfo // credentials, which another name could have too
	left    []string
	names   int
	bytes   int
	problem error
}

// AddSettings adds copies of the parts of the user's settings to the files that l.Seed writes, and returns the names that were
// left out: links, and names that begin with a dot below a part, such as .git and .env.
func (a *Agent) AddSettings(l *Launch, home string, parts []string) (left []string, err error) {
	root, err := os.OpenRoot(home)
	if err != nil {
		return nil, fmt.Errorf("copy settings: %w", fsutil.Reason(err))
	}
	defer root.Close()
	p, c := a.Provider, &settingsCopy{}
	for _, cred := range append(slices.Clone(p.Credentials), a.cred) {
		if info, err := os.Stat(a.o.file(cred)); err == nil {
			c.secret = append(c.secret, info)
		}
	}
	for _, part := range parts {
		if len(p.Settings[part]) == 0 {
			return nil, fmt.Errorf("copy settings: agent %q has no %s", p.Name, part)
		}
		for _, place := range p.Settings[part] {
			if c.place(root, place); c.problem != nil {
				return nil, fmt.Errorf("copy settings: %w", c.problem)
			}
		}
	}
	l.copies = c.files
	return c.left, nil
}

// place copies one file, or the files of one directory.
func (c *settingsCopy) place(home *os.Root, place string) {
	info, err := home.Lstat(place)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		c.problem = err
	case info.IsDir():
		dir, err := fsutil.OpenDir(home, place)
		if err != nil {
			c.problem = err
			return
		}
		defer dir.Close()
		if missed := fsutil.Walk(dir, settingsNames-c.names, func(e fsutil.WalkEntry) bool {
			c.names++
			name := path.Join(place, e.Path)
			if hidden := strings.HasPrefix(e.Path, ".") || strings.Contains(e.Path, "/."); hidden || !e.Type().IsRegular() && !e.IsDir() {
				if path.Base(e.Path)[0] == '.' || !hidden {
					c.left = append(c.left, name)
				}
				return true
			}
			if !e.IsDir() {
				c.file(name, e.Open)
			}
			return c.problem == nil
		}); missed > 0 && c.problem == nil {
			c.problem = fmt.Errorf("%q cannot be read whole, or has more than %d names", place, settingsNames)
		}
	case info.Mode().IsRegular():
		c.file(place, func() (*os.File, error) { return fsutil.OpenRegular(home, place) })
	default:
		c.left = append(c.left, place)
	}
}

// file copies one file, unless it is a credential.
func (c *settingsCopy) file(name string, open func() (*os.File, error)) {
	f, err := open()
	if err != nil {
		c.problem = err
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && slices.ContainsFunc(c.secret, func(s fs.FileInfo) bool { return os.SameFile(s, info) }) {
		c.left = append(c.left, name)
		return
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(settingsBytes-c.bytes+1)))
	if c.bytes += len(data); err == nil && c.bytes > settingsBytes {
		err = fmt.Errorf("the chosen settings have more than %d MiB", settingsBytes>>20)
	}
	if c.problem = err; err != nil {
		return
	}
	c.files = append(c.files, copied{name, data, 0o600 | info.Mode().Perm()&0o100})
}
