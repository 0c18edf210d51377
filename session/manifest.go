package session

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

// manifestVersion is the version of the format.
const manifestVersion = 2

// Names of the files in the manifests' directory.
const (
	manifestSuffix = ".json"
	unfinished     = ".new-"
)

// Manifest records what a run left in its output directory: each file with its size and SHA-256. The manifest of
// DIR/NAME is DIR/.manifests/NAME.json. It lies beside the directory and not in it, so that no sandbox with the
// directory as /out, then or later, can change it.
//
// A manifest shows that files have not changed since it was made. It is not signed: a process that may write beside the
// directory can replace it.
type Manifest struct {
	Version int            `json:"version"` // 2
	Files   []manifestFile `json:"files"`   // sorted by path
	// Uncovered counts the entries that Files omits: special files, names that are not UTF-8, unreadable entries, and
	// everything over the bounds.
	Uncovered int `json:"uncovered,omitempty"`
}

// manifestFile is a regular file or a symbolic link.
type manifestFile struct {
	Path   string `json:"path"` // relative to the directory
	Size   int64  `json:"size"` // of a link: of its target's name
	SHA256 string `json:"sha256,omitempty"`
	Mode   string `json:"mode,omitempty"` // octal permission bits of a file
	Link   string `json:"link,omitempty"` // target of a symbolic link
}

// manifestPath returns the path of an output directory's manifest.
func manifestPath(dir string) string {
	return filepath.Join(filepath.Dir(dir), ".manifests", filepath.Base(dir)+manifestSuffix)
}

// WriteManifest writes the manifest of what is in an output directory now, and returns its path. No sandbox may use
// the directory.
func WriteManifest(dir string) (m *Manifest, path string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, "", fmt.Errorf("make manifest of %q: %w", dir, fsutil.Reason(err))
	}
	defer root.Close()
	path = manifestPath(dir)
	if m, err = makeManifest(root); err == nil {
		err = m.write(path)
	}
	if err != nil {
		return nil, "", err
	}
	return m, path, nil
}

// ManifestOf returns the path of an output directory's manifest, or "" if it has none.
func (*Service) ManifestOf(dir string) string {
	path := manifestPath(dir)
	if _, err := os.Lstat(path); err != nil {
		return ""
	}
	return path
}

// manifestMaker builds a manifest.
type manifestMaker struct {
	Manifest
	bytes int64
}

// makeManifest reads the files in root. It reads links, follows none and opens only regular files and directories.
func makeManifest(root *os.Root) (*Manifest, error) {
	if _, err := root.Stat("."); err != nil {
		return nil, fmt.Errorf("make manifest: %w", err)
	}
	m := &manifestMaker{Manifest: Manifest{Version: manifestVersion, Files: []manifestFile{}}}
	missed := fsutil.Walk(root, visitMax, m.entry)
	m.Uncovered += missed
	slices.SortFunc(m.Files, func(a, b manifestFile) int { return strings.Compare(a.Path, b.Path) })
	return &m.Manifest, nil
}

func (m *manifestMaker) entry(e fsutil.WalkEntry) (more bool) {
	err := fs.ErrInvalid
	switch {
	case e.IsDir():
		err = nil // an unreadable directory counts as missed
	case !utf8.ValidString(e.Path) || len(m.Files) >= filesMax:
	case e.Type()&fs.ModeSymlink != 0:
		var target string
		if target, err = e.Readlink(); err == nil && utf8.ValidString(target) {
			m.Files = append(m.Files, manifestFile{Path: e.Path, Size: int64(len(target)), Link: target})
		} else {
			err = fs.ErrInvalid
		}
	case e.Type().IsRegular():
		var f manifestFile
		if f, err = sumFile(e, bytesMax-m.bytes); err == nil {
			m.Files, m.bytes = append(m.Files, f), m.bytes+f.Size
		}
	}
	if err != nil {
		m.Uncovered++
	}
	return true
}

// errMuch means that a file is larger than the remaining bound.
var errMuch = errors.New("too large")

func sumFile(e fsutil.WalkEntry, most int64) (manifestFile, error) {
	f, err := e.Open()
	if err != nil {
		return manifestFile{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return manifestFile{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return manifestFile{}, errMuch
	}
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, most+1))
	if err == nil && n > most {
		err = errMuch
	}
	return manifestFile{Path: e.Path, Size: n, SHA256: hex.EncodeToString(h.Sum(nil)), Mode: modeText(info.Mode())}, err
}

// modeText returns the permission bits with set-user-ID, set-group-ID and sticky bits, as chmod(1) reads them.
func modeText(mode fs.FileMode) string {
	bits := uint32(mode.Perm())
	for flag, bit := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if mode&flag != 0 {
			bits |= bit
		}
	}
	return fmt.Sprintf("%04o", bits)
}

// write creates or replaces the file at path atomically.
func (m *Manifest) write(path string) error {
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

// pruneManifests removes the manifests below root of removed output directories. It also removes temporary files
// of interrupted writes that are older than before. It returns the number of removed files.
func pruneManifests(root string, before time.Time) (removed int, err error) {
	dir := filepath.Dir(manifestPath(filepath.Join(root, "any")))
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
	if name, ok := strings.CutSuffix(e.Name(), manifestSuffix); ok {
		_, err := os.Lstat(filepath.Join(root, name))
		return errors.Is(err, fs.ErrNotExist)
	}
	info, err := e.Info()
	return err == nil && strings.HasPrefix(e.Name(), unfinished) && info.ModTime().Before(before)
}

// ReadManifest reads the manifest of an output directory, at most readMax bytes of it.
func ReadManifest(dir string) (*Manifest, error) {
	path := manifestPath(dir)
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	defer f.Close()
	m, err := parseManifest(io.LimitReader(f, readMax))
	if err != nil {
		return nil, fmt.Errorf("read manifest %q: %w", path, err)
	}
	return m, nil
}

// parseManifest reads a manifest from r. It rejects paths that are not below a directory.
func parseManifest(r io.Reader) (*Manifest, error) {
	var m Manifest
	if err := json.NewDecoder(r).Decode(&m); err != nil {
		return nil, err
	}
	if m.Version != manifestVersion {
		return nil, fmt.Errorf("unknown version %d", m.Version)
	}
	for _, f := range m.Files {
		if !filepath.IsLocal(f.Path) || strings.ContainsRune(f.Path, 0) {
			return nil, fmt.Errorf("path %q is not below a directory", f.Path)
		}
	}
	return &m, nil
}

// change says what changed in addition to the content.
func (f manifestFile) change(now manifestFile) string {
	switch {
	case f.Link != now.Link && f.Link != "" && now.Link != "":
		return fmt.Sprintf(" from a link to %q to a link to %q", f.Link, now.Link)
	case f.Link == "" && now.Link != "":
		return fmt.Sprintf(" from a file to a link to %q", now.Link)
	case f.Link != "" && now.Link == "":
		return " from a link to a file"
	case f.Mode != now.Mode:
		return fmt.Sprintf(" from mode %s to %s", f.Mode, now.Mode)
	}
	return ""
}

// Differences compares root with the manifest. It returns one line for each changed, missing or new file.
func (m *Manifest) Differences(root *os.Root) (lines []string, err error) {
	now, err := makeManifest(root)
	if err != nil {
		return nil, err
	}
	have := map[string]manifestFile{}
	for _, f := range now.Files {
		have[f.Path] = f
	}
	for _, f := range m.Files {
		switch is, there := have[f.Path]; {
		case !there:
			lines = append(lines, fmt.Sprintf("missing %q", f.Path))
		case is != f:
			lines = append(lines, fmt.Sprintf("changed %q%s", f.Path, f.change(is)))
		}
		delete(have, f.Path)
	}
	for _, f := range now.Files {
		if _, is := have[f.Path]; is {
			lines = append(lines, fmt.Sprintf("new %q", f.Path))
		}
	}
	if now.Uncovered != m.Uncovered {
		lines = append(lines, fmt.Sprintf("uncovered files: %d, in the manifest %d", now.Uncovered, m.Uncovered))
	}
	return lines, nil
}
