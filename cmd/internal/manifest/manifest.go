// Package manifest records what a run left in its output directory: each file with its size and SHA-256. The
// manifest of DIR/NAME is DIR/.manifests/NAME.json. It lies beside the directory and not in it, so that no
// sandbox with the directory as /out, then or later, can change it.
//
//	m, err := manifest.Make(root)                  // when no sandbox has it any more
//	err = m.Write(manifest.Path(dir))
//	m, err = manifest.Read(manifest.Path(dir))
//	lines, err := m.Differences(root)              // empty: nothing changed
//
// A manifest shows that files have not changed since it was made. It is not signed: a process that may write
// beside the directory can replace it.
package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"demesne/internal/fsutil"
)

// Bounds of a manifest's coverage; Uncovered counts the rest.
const (
	filesMax = 5000
	bytesMax = 256 << 20
	visitMax = 20_000   // directory entries visited
	readMax  = 16 << 20 // size of a manifest in bytes
)

// Names of the files in the manifests' directory.
const (
	suffix     = ".json"
	unfinished = ".new-"
)

// Manifest is the recorded content of a directory.
type Manifest struct {
	Version int    `json:"version"` // 1
	Files   []File `json:"files"`   // sorted by path
	// Uncovered counts the entries that Files omits: links and special files, names that are not UTF-8,
	// unreadable entries, and everything over the bounds.
	Uncovered int `json:"uncovered,omitempty"`
}

// File is a regular file.
type File struct {
	Path   string `json:"path"` // relative to the directory
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Path returns the path of an output directory's manifest.
func Path(dir string) string {
	return filepath.Join(filepath.Dir(dir), ".manifests", filepath.Base(dir)+suffix)
}

// maker builds a manifest.
type maker struct {
	Manifest
	bytes int64
}

// Make reads the files in root. It follows no links and opens only regular files and directories.
func Make(root *os.Root) (*Manifest, error) {
	if _, err := root.Stat("."); err != nil {
		return nil, fmt.Errorf("make manifest: %w", err)
	}
	m := &maker{Manifest: Manifest{Version: 1, Files: []File{}}}
	missed := fsutil.Walk(root, visitMax, m.entry)
	m.Uncovered += missed
	slices.SortFunc(m.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return &m.Manifest, nil
}

func (m *maker) entry(e fsutil.WalkEntry) (more bool) {
	err := fs.ErrInvalid
	switch {
	case e.IsDir():
		err = nil // an unreadable directory counts as missed
	case e.Type().IsRegular() && utf8.ValidString(e.Path) && len(m.Files) < filesMax:
		var f File
		if f, err = sum(e, bytesMax-m.bytes); err == nil {
			m.Files, m.bytes = append(m.Files, f), m.bytes+f.Size
		}
	}
	if err != nil {
		m.Uncovered++
	}
	return true
}

// errMuch means that a file is larger than the remaining bound.
var errMuch = errors.New("too much")

func sum(e fsutil.WalkEntry, most int64) (File, error) {
	f, err := e.Open()
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return File{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return File{}, errMuch
	}
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, most+1))
	if err == nil && n > most {
		err = errMuch
	}
	return File{e.Path, n, hex.EncodeToString(h.Sum(nil))}, err
}

// Write creates or replaces the file at path atomically.
func (m *Manifest) Write(path string) error {
	raw, err := json.MarshalIndent(m, "", "\t")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	var f *os.File
	if err == nil {
		f, err = os.CreateTemp(filepath.Dir(path), unfinished+"*")
	}
	if err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	_, err = f.Write(append(raw, '\n'))
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}

// Prune removes the manifests below root of output directories that are gone. It also removes temporary files
// of interrupted Writes that are older than before. It returns the number of removed files.
func Prune(root string, before time.Time) (removed int, err error) {
	dir := filepath.Dir(Path(filepath.Join(root, "any")))
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	for _, e := range entries {
		if !stale(root, e, before) {
			continue
		}
		one := os.Remove(filepath.Join(dir, e.Name()))
		if one == nil {
			removed++
		}
		err = errors.Join(err, one)
	}
	if err != nil {
		err = fmt.Errorf("prune manifests: %w", err)
	}
	return removed, err
}

// stale reports whether e, a file in the manifests' directory, can be removed.
func stale(root string, e fs.DirEntry, before time.Time) bool {
	if name, ok := strings.CutSuffix(e.Name(), suffix); ok {
		_, err := os.Lstat(filepath.Join(root, name))
		return errors.Is(err, fs.ErrNotExist)
	}
	info, err := e.Info()
	return err == nil && strings.HasPrefix(e.Name(), unfinished) && info.ModTime().Before(before)
}

// Read reads the manifest at path, at most readMax bytes of it.
func Read(path string) (*Manifest, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	defer f.Close()
	m, err := Parse(io.LimitReader(f, readMax))
	if err != nil {
		return nil, fmt.Errorf("read manifest %q: %w", path, err)
	}
	return m, nil
}

// Parse reads a manifest from r. It rejects paths that are not below a directory.
func Parse(r io.Reader) (*Manifest, error) {
	var m Manifest
	if err := json.NewDecoder(r).Decode(&m); err != nil {
		return nil, err
	}
	if m.Version != 1 {
		return nil, fmt.Errorf("version %d is not known here", m.Version)
	}
	for _, f := range m.Files {
		if !filepath.IsLocal(f.Path) || strings.ContainsRune(f.Path, 0) {
			return nil, fmt.Errorf("path %q is not below a directory", f.Path)
		}
	}
	return &m, nil
}

// Differences compares root with the manifest. It returns one line for each changed, missing or new file.
func (m *Manifest) Differences(root *os.Root) (lines []string, err error) {
	now, err := Make(root)
	if err != nil {
		return nil, err
	}
	have := map[string]File{}
	for _, f := range now.Files {
		have[f.Path] = f
	}
	for _, f := range m.Files {
		switch is, there := have[f.Path]; {
		case !there:
			lines = append(lines, fmt.Sprintf("missing %q", f.Path))
		case is != f:
			lines = append(lines, fmt.Sprintf("changed %q", f.Path))
		}
		delete(have, f.Path)
	}
	for _, f := range now.Files {
		if _, is := have[f.Path]; is {
			lines = append(lines, fmt.Sprintf("new %q", f.Path))
		}
	}
	if now.Uncovered != m.Uncovered {
		lines = append(lines, fmt.Sprintf("uncovered: %d, and there were %d", now.Uncovered, m.Uncovered))
	}
	return lines, nil
}
