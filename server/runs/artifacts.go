package runs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"demesne/internal/fsutil"
	"demesne/runner/tarball"
)

// ArtifactsDir is the directory of a sandbox whose files are kept after each run.
const ArtifactsDir = "/artifacts"

// Bounds of the files of one run.
const (
	maxArtifacts = 256 << 20 // bytes
	maxFiles     = 5000
	maxFile      = 64 << 20
	maxListBytes = maxFiles * (4096 + 256) // of their names
)

// Names in the directory of a run, and of the store.
const (
	keptDir   = "artifacts"
	listFile  = "artifacts.json"
	latestDir = "latest"
)

// Keep copies the files of the sandbox. fetch copies [ArtifactsDir] into a directory, as "artifacts"; links are skipped.
// A failure is recorded, and does not fail the run.
func (r *Recorder) Keep(fetch func(*os.Root, tarball.Limits) error) {
	n, err := r.keep(fetch)
	e := Event{artifactsExtracted, Data{Count: &n}}
	if err != nil {
		e.Data.Error = err.Error()
	}
	r.put(e)
}

func (r *Recorder) keep(fetch func(*os.Root, tarball.Limits) error) (n int, err error) {
	dir, err := os.OpenRoot(filepath.Join(r.store.dir, r.job))
	if err != nil {
		return 0, fmt.Errorf("keep artifacts: %w", fsutil.Reason(err))
	}
	defer dir.Close()
	failed := fetch(dir, tarball.Limits{Bytes: maxArtifacts, Entries: 2 * maxFiles})
	list, left, err := r.store.list(dir)
	if err != nil {
		return 0, errors.Join(failed, err)
	}
	if left > 0 {
		failed = errors.Join(failed, fmt.Errorf("%d files were left out: a run keeps %d files of at most %d bytes", left, maxFiles, maxFile))
	}
	r.store.share(dir, list, r.store.latest(r.request.Namespace, r.request.Identifier))
	err = fsutil.WriteRecord(r.store.listFile(r.job), list, maxListBytes)
	if err == nil {
		err = fsutil.WriteFile(r.store.latestFile(r.request.Namespace, r.request.Identifier), []byte(r.job), 0o600)
	}
	return len(list), errors.Join(failed, err)
}

// list returns the files that were copied, and removes those that are too large or too many. left is their number.
func (s *Store) list(dir *os.Root) (list []Artifact, left int, err error) {
	root, err := dir.OpenRoot(keptDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("keep artifacts: %w", fsutil.Reason(err))
	}
	defer root.Close()
	missed := fsutil.Walk(root, 4*maxFiles, func(e fsutil.WalkEntry) bool {
		if !e.Type().IsRegular() {
			return true
		}
		info, err := e.Info()
		if err != nil || info.Size() > maxFile || len(list) == maxFiles {
			root.Remove(e.Path)
			left++
			return true
		}
		if f, err := e.Open(); err == nil {
			h := sha256.New()
			n, _ := io.Copy(h, io.LimitReader(f, maxFile))
			f.Close()
			list = append(list, Artifact{Path: e.Path, Size: n, SHA256: hex.EncodeToString(h.Sum(nil))})
		}
		return true
	})
	slices.SortFunc(list, func(a, b Artifact) int { return strings.Compare(a.Path, b.Path) })
	return list, left + missed, nil
}

// share replaces files that an earlier run has too by links to that run's. A sandbox keeps its files between runs, so most
// are the same.
func (s *Store) share(dir *os.Root, list []Artifact, earlier string) {
	if earlier == "" {
		return
	}
	had := map[Artifact]bool{}
	for _, a := range s.artifacts(earlier) {
		had[a] = true
	}
	from, err := os.OpenRoot(filepath.Join(s.dir, earlier, keptDir))
	if err != nil {
		return
	}
	defer from.Close()
	const temp = ".same"
	for _, a := range list {
		if !had[a] {
			continue
		}
		old, new := filepath.Join(s.dir, earlier, keptDir, a.Path), filepath.Join(s.dir, path.Base(dir.Name()), temp)
		if os.Link(old, new) == nil && dir.Rename(temp, path.Join(keptDir, a.Path)) != nil {
			dir.Remove(temp)
		}
	}
}

// artifacts returns the list of a run's files; nil: none were kept.
func (s *Store) artifacts(job string) (list []Artifact) {
	if fsutil.ReadRecord(s.listFile(job), &list, maxListBytes) != nil {
		return nil
	}
	return list
}

func (s *Store) listFile(job string) string { return filepath.Join(s.dir, job, listFile) }

// latestFile returns the file with the newest run that has artifacts. Names are case-sensitive, and the file system may not
// be.
func (s *Store) latestFile(namespace, identifier string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + identifier))
	return filepath.Join(s.dir, latestDir, hex.EncodeToString(sum[:16]))
}

// latest returns the job of that run; empty: none.
func (s *Store) latest(namespace, identifier string) string {
	b, err := os.ReadFile(s.latestFile(namespace, identifier))
	if err != nil {
		return ""
	}
	return string(b)
}

// openArtifact opens a file of a run, or of the latest one. The files are the server's own copies, and no link is followed.
func (s *Store) openArtifact(identifier, run, name string, namespace string, sees func(string) bool) (*os.File, fs.FileInfo, error) {
	if run == latestDir {
		run = idOf(s.latest(namespace, identifier))
	}
	j, r, err := s.job(run, sees)
	if err != nil {
		return nil, nil, err
	}
	if r.Identifier != identifier || !filepath.IsLocal(name) {
		return nil, nil, fs.ErrNotExist
	}
	root, err := os.OpenRoot(filepath.Join(s.dir, j.ID, keptDir))
	if err != nil {
		return nil, nil, fs.ErrNotExist
	}
	defer root.Close()
	before, err := root.Lstat(name)
	if err != nil || !before.Mode().IsRegular() {
		return nil, nil, fs.ErrNotExist
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, nil, fs.ErrNotExist
	}
	return f, before, nil
}
