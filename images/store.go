package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"demesne/images/oci"
	"demesne/internal/fsutil"
)

// Errors of a store, for [errors.Is].
var (
	ErrNotFound = errors.New("not in the store")
	ErrCorrupt  = errors.New("damaged")
	ErrPresent  = errors.New("present")
	ErrInUse    = errors.New("a sandbox uses it")
)

// A Store is a directory of images. It is safe for concurrent use by goroutines and by processes. A
// process that only reads may open a store that it cannot write to.
type Store struct {
	files

	mu   sync.Mutex
	pins map[oci.Digest]*os.File // blobs that no image names yet, each with a shared flock
}

// DefaultDir returns the directory of images. That is $DEMESNE_IMAGE_STORE if set. Root uses
// /var/lib/demesne/images if it can be created and written to. The fallback is ~/.demesne/images.
// $DEMESNE_IMAGE_STORE must be absolute, because the programs that share the store start in different
// directories.
func DefaultDir() (string, error) {
	if dir := os.Getenv("DEMESNE_IMAGE_STORE"); dir != "" {
		if !filepath.IsAbs(dir) {
			return "", fmt.Errorf("find image store: $DEMESNE_IMAGE_STORE %q is not an absolute path", dir)
		}
		return filepath.Clean(dir), nil
	}
	if os.Geteuid() == 0 {
		const dir = "/var/lib/demesne/images"
		if makeDir(dir, 0o755) == nil && syscall.Access(dir, accessWrite) == nil {
			return dir, nil
		}
	}
	dir, err := fsutil.StateDir("images")
	if err != nil {
		return "", fmt.Errorf("find image store: %w", err)
	}
	return dir, nil
}

const (
	accessWrite = 2 // W_OK, access(2)

	layoutFile = "oci-layout"
	layout     = `{"imageLayoutVersion":"1.0.0"}`
)

// Open opens the store in dir, and creates it if it does not exist. It refuses a world-writable
// directory: other users could replace verified blobs.
func Open(dir string) (*Store, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open store %q: %w", dir, err)
	}
	s := &Store{files: files{abs}, pins: map[oci.Digest]*os.File{}}
	st, err := os.Stat(abs)
	if err == nil && st.Mode().Perm()&0o002 != 0 {
		return nil, fmt.Errorf("open store %q: every user may write to it", dir)
	}
	if s.made() {
		return s, nil
	}
	if err := s.create(); err != nil {
		return nil, fmt.Errorf("open store %q: %w", dir, err)
	}
	return s, nil
}

// files is the directory of a store: the names of its files, and the operations that need no pins.
type files struct{ dir string }

// made reports whether create has completed here. An image layout that another tool made has no trees
// directory.
func (s files) made() bool {
	_, err1 := os.Lstat(s.path("trees"))
	_, err2 := os.Lstat(s.path(layoutFile))
	return err1 == nil && err2 == nil
}

// create makes the directories, trees last, and then the file oci-layout. If both exist, the store is
// complete. Any number of processes may call create at once.
func (s files) create() error {
	// The unpacker of root's runner has another uid and must read the blobs.
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o755
	}
	for _, d := range []struct {
		name string
		mode fs.FileMode
	}{{"", mode}, {"blobs/sha256", 0o755}, {"used", 0o755}, {"partial", 0o700}, {"locks", 0o700}, {"trees", 0o755}} {
		if err := makeDir(s.path(d.name), d.mode); err != nil {
			return err
		}
	}
	return fsutil.WriteFile(s.path(layoutFile), []byte(layout), 0o644)
}

// makeDir makes a directory with mode, and missing parents with 0755, independent of the umask. It
// leaves an existing directory unchanged.
func makeDir(path string, mode fs.FileMode) error {
	if st, err := os.Stat(path); err == nil {
		if st.IsDir() {
			return nil
		}
		return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR} // mkdir(2) would return EEXIST
	}
	if parent := filepath.Dir(path); parent != path {
		if err := makeDir(parent, 0o755); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, mode); err != nil {
		// Another process may have made it meanwhile.
		if st, serr := os.Stat(path); serr == nil && st.IsDir() {
			return nil
		}
		return err
	}
	return os.Chmod(path, mode)
}

// Dir returns the absolute path of the store.
func (s *Store) Dir() string { return s.dir }

// Close releases the blobs that no image names. The store can still be used afterwards.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for d, f := range s.pins {
		f.Close()
		delete(s.pins, d)
	}
}

func (s files) path(name string) string         { return filepath.Join(s.dir, name) }
func (s files) blobPath(d oci.Digest) string    { return s.path("blobs/sha256/" + d.Encoded()) }
func (s files) partialPath(name string) string  { return s.path("partial/" + name) }
func (s files) droppedPath(d oci.Digest) string { return s.path("dropped/" + d.Encoded()) }
func (s files) usedPath(d oci.Digest) string    { return s.path("used/" + d.Encoded()) }
