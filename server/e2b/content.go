package e2b

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/session"
)

// content serves the files of one volume. A sandbox writes there too, so no link leads out of the root, and only regular files
// are opened.
type content struct {
	root  *os.Root
	held  *holding
	state *os.Root // with volumeUploads
}

// volumeEntry describes a file of a volume.
type volumeEntry struct {
	Name   string    `json:"name"`
	Path   string    `json:"path"`
	Type   string    `json:"type"`
	Size   int64     `json:"size"`
	Mode   uint32    `json:"mode"`
	UID    uint32    `json:"uid"`
	GID    uint32    `json:"gid"`
	Atime  time.Time `json:"atime"`
	Mtime  time.Time `json:"mtime"`
	Ctime  time.Time `json:"ctime"`
	Target string    `json:"target,omitempty"`
}

func (c *content) serve(w http.ResponseWriter, r *http.Request, what string) error {
	q := r.URL.Query()
	name := path.Clean("/" + q.Get("path"))[1:]
	if name == "" {
		name = "."
	}
	depth, _ := strconv.Atoi(q.Get("depth"))
	force := q.Get("force") == "true"
	mode, err := modeOf(q.Get("mode"))
	if err != nil {
		return err
	}
	status := http.StatusOK
	switch r.Method + " " + what {
	case "GET dir":
		all, err := c.list(name, min(max(depth, 1), deepest))
		if err != nil {
			return err
		}
		return answer(w, status, all)
	case "POST dir":
		if err := c.mkdir(name, force, mode); err != nil {
			return err
		}
		status = http.StatusCreated
	case "GET path":
	case "PATCH path":
		var m struct {
			Mode *uint32 `json:"mode"`
		}
		if err := body(r, &m); err != nil {
			return err
		}
		if m.Mode != nil {
			if err := c.root.Chmod(name, fs.FileMode(*m.Mode&0o777)); err != nil {
				return err
			}
		}
	case "DELETE path":
		if name == "." {
			return fmt.Errorf("%w: the volume itself", session.ErrInvalid)
		}
		if err := c.remove(name); err != nil {
			return err
		}
		return empty(w)
	case "GET file":
		return c.get(w, name)
	case "PUT file":
		if err := c.put(name, r.Body, force, mode); err != nil {
			return err
		}
		status = http.StatusCreated
	default:
		return unserved(r)
	}
	e, err := c.entry(name)
	if err != nil {
		return err
	}
	return answer(w, status, e)
}

// modeOf returns the permissions that a call asks for; nil: the default.
func modeOf(text string) (*fs.FileMode, error) {
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("%w: mode %q: not a number", session.ErrInvalid, text)
	}
	mode := fs.FileMode(n & 0o777)
	return &mode, nil
}

// mkdir makes a directory and its parents. Without force the directory must be new.
func (c *content) mkdir(name string, force bool, mode *fs.FileMode) error {
	c.held.turn.Lock()
	defer c.held.turn.Unlock()
	err := c.makes(name, func() error {
		if err := c.root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		return c.root.Mkdir(name, 0o755)
	})
	if force && errors.Is(err, fs.ErrExist) {
		return c.root.MkdirAll(name, 0o755) // fails for a file
	}
	if err == nil && mode != nil {
		err = c.root.Chmod(name, *mode)
	}
	return err
}

func (c *content) entry(name string) (e volumeEntry, err error) {
	st, err := c.root.Lstat(name)
	if err != nil {
		return e, err
	}
	e = volumeEntry{Name: path.Base("/" + name), Path: path.Clean("/" + name), Type: "unknown", Size: st.Size(), Mode: uint32(st.Mode().Perm()), Mtime: st.ModTime()}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		e.UID, e.GID = sys.Uid, sys.Gid
		e.Atime, e.Ctime = time.Unix(sys.Atim.Unix()), time.Unix(sys.Ctim.Unix())
	}
	switch {
	case st.Mode().IsRegular():
		e.Type = "file"
	case st.IsDir():
		e.Type = "directory"
	case st.Mode()&fs.ModeSymlink != 0:
		e.Type = "symlink"
		e.Target, _ = c.root.Readlink(name)
	}
	return e, nil
}

func (c *content) list(name string, depth int) (all []volumeEntry, err error) {
	all = []volumeEntry{}
	d, err := c.root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		e, err := c.entry(path.Join(name, n))
		if err != nil {
			continue // it is gone
		}
		all = append(all, e)
		if depth > 1 && e.Type == "directory" {
			if more, err := c.list(path.Join(name, n), depth-1); err == nil {
				all = append(all, more...)
			}
		}
	}
	return all, nil
}

func (c *content) get(w http.ResponseWriter, name string) error {
	f, err := c.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return &fs.PathError{Op: "read", Path: name, Err: syscall.EISDIR}
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Length", strconv.FormatInt(st.Size(), 10))
	io.CopyN(w, f, st.Size())
	return nil
}

// put writes a file, and makes its directory. Without force the file must be new. The content is first written outside the
// volume, so that a failed upload changes nothing, and no sandbox sees a part of it. Meanwhile both files count.
func (c *content) put(name string, from io.Reader, force bool, mode *fs.FileMode) (err error) {
	name = c.target(name)
	if _, err := c.replaced(name, force); err != nil {
		return err // before a long upload
	}
	temp := path.Join(volumeUploads, rand.Text())
	f, err := c.state.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	h := c.held
	h.write(1)
	defer h.write(-1)
	var taken Stored
	defer func() {
		if err != nil {
			c.state.Remove(temp)
			h.give(taken)
		}
	}()
	take := func(n Stored) error {
		err := h.take(n)
		if err == nil {
			taken = taken.plus(n)
		}
		return err
	}
	if err := take(Stored{Bytes: entryCost, Files: 1}); err != nil {
		return err
	}
	if _, err := io.Copy(metered{f, func(n int64) error { return take(Stored{Bytes: n}) }}, from); err != nil {
		return err
	}
	return c.place(f, temp, name, force, mode)
}

// target returns the name that a symbolic link leads to, if it is one: a write replaces that file, and the link stays.
func (c *content) target(name string) string {
	to := name
	for range 8 {
		link, err := c.root.Readlink(to)
		if err != nil {
			break
		}
		to = path.Join(path.Dir(to), link)
	}
	is, err1 := c.root.Stat(name)
	if was, err2 := c.root.Lstat(to); err1 != nil || err2 != nil || !os.SameFile(is, was) {
		return name // a directory on the way is a link
	}
	return to
}

// replaced returns the file that a write replaces, or nil for a new file.
func (c *content) replaced(name string, force bool) (fs.FileInfo, error) {
	st, err := c.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !force:
		return nil, &fs.PathError{Op: "write", Path: name, Err: syscall.EEXIST}
	case !st.Mode().IsRegular():
		return nil, &fs.PathError{Op: "write", Path: name, Err: syscall.EISDIR}
	}
	return st, nil
}

// place gives a complete upload its name. It keeps the owner and the permissions of a file that it replaces.
func (c *content) place(f *os.File, temp, name string, force bool, mode *fs.FileMode) error {
	c.held.turn.Lock()
	defer c.held.turn.Unlock()
	was, err := c.replaced(name, force)
	if err != nil {
		return err
	}
	flags := uint(unix.RENAME_NOREPLACE)
	if was != nil {
		flags = 0
		if err := f.Chmod(was.Mode().Perm()); err != nil {
			return err
		}
		if sys, ok := was.Sys().(*syscall.Stat_t); ok {
			f.Chown(int(sys.Uid), int(sys.Gid)) // only root may; otherwise the owner is a new file's
		}
	}
	if mode != nil {
		if err := f.Chmod(*mode); err != nil {
			return err
		}
	}
	dir := path.Dir(name)
	if err := c.makes(dir, func() error { return c.root.MkdirAll(dir, 0o755) }); err != nil {
		return err
	}
	from, err := c.state.Open(path.Dir(temp))
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := c.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := unix.Renameat2(int(from.Fd()), path.Base(temp), int(to.Fd()), path.Base(name), flags); err != nil {
		return &fs.PathError{Op: "write", Path: name, Err: err}
	}
	if was != nil {
		c.held.give(costOf(was))
	}
	return nil
}

// remove removes a file, or a directory with its content.
func (c *content) remove(name string) error {
	c.held.turn.Lock()
	defer c.held.turn.Unlock()
	st, err := c.root.Lstat(name)
	if err != nil {
		return err
	}
	was := costOf(st)
	if st.IsDir() {
		more, _ := measure(c.root, name) // with an error it is less, which is counted on
		was = was.plus(more)
	}
	if err := c.root.RemoveAll(name); err != nil {
		return err
	}
	c.held.give(was)
	return nil
}
