package fileops

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// watchMost bounds the directories of a recursive watch.
const watchMost = 8192

// watchMask lists the events of inotify(7) that a watch reports.
const watchMask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ATTRIB | unix.IN_ONLYDIR

// watcher reports changes below a directory. inotify is used inside the sandbox, where it sees what the sandbox's processes
// change; polling from the outside would miss a file that lives shorter than its interval.
type watcher struct {
	*server
	fd        int
	root      string
	recursive bool
	dirs      map[int32]string
}

// watch reports events until the caller's stream ends.
func (s *server) watch(t Request) error {
	info, err := os.Stat(t.Path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &fs.PathError{Op: "watch", Path: t.Path, Err: unix.ENOTDIR}
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return &fs.PathError{Op: "watch", Path: t.Path, Err: err}
	}
	defer unix.Close(fd)
	w := &watcher{server: s, fd: fd, root: t.Path, recursive: t.Recursive, dirs: map[int32]string{}}
	if err := w.add(t.Path); err != nil {
		return err
	}
	if err := errors.Join(s.answer(Answer{}), s.out.Flush()); err != nil {
		return err
	}
	go func() {
		io.Copy(io.Discard, s.in)
		os.Exit(0) // the read below cannot be interrupted
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return err
		}
		if err := errors.Join(w.report(buf[:n]), w.out.Flush()); err != nil {
			return err
		}
	}
}

// add watches a directory, and with recursive also the directories below it.
func (w *watcher) add(dir string) error {
	if len(w.dirs) >= watchMost {
		return &fs.PathError{Op: "watch", Path: dir, Err: unix.ENOSPC}
	}
	wd, err := unix.InotifyAddWatch(w.fd, dir, watchMask)
	if err != nil {
		return &fs.PathError{Op: "watch", Path: dir, Err: err}
	}
	w.dirs[int32(wd)] = dir
	if !w.recursive {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // it cannot be read, or is gone
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := w.add(filepath.Join(dir, e.Name())); err != nil && len(w.dirs) >= watchMost {
				return err
			}
		}
	}
	return nil
}

// report writes the events that one read returned.
func (w *watcher) report(buf []byte) error {
	for len(buf) >= unix.SizeofInotifyEvent {
		e := (*unix.InotifyEvent)(unsafe.Pointer(&buf[0]))
		end := unix.SizeofInotifyEvent + int(e.Len)
		name := unix.ByteSliceToString(buf[unix.SizeofInotifyEvent:end])
		buf = buf[end:]
		dir, known := w.dirs[e.Wd]
		switch {
		case e.Mask&unix.IN_IGNORED != 0:
			delete(w.dirs, e.Wd)
			continue
		case !known || name == "":
			continue
		}
		if err := w.event(e.Mask, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// event writes one event, and watches a new directory. What was made in that before it was watched is reported too.
func (w *watcher) event(mask uint32, path string) error {
	isNew := mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0
	if err := w.write(kindOf(mask), path); err != nil {
		return err
	}
	if !isNew || mask&unix.IN_ISDIR == 0 || !w.recursive {
		return nil
	}
	if w.add(path) != nil {
		return nil
	}
	return filepath.WalkDir(path, func(inner string, d fs.DirEntry, err error) error {
		if err != nil || inner == path {
			return nil
		}
		err = w.write("create", inner)
		if st, gone := d.Info(); gone == nil && st.Mode().IsRegular() && st.Size() > 0 {
			err = errors.Join(err, w.write("write", inner))
		}
		return err
	})
}

// kindOf returns the type of an event.
func kindOf(mask uint32) string {
	switch {
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		return "create"
	case mask&unix.IN_DELETE != 0:
		return "remove"
	case mask&unix.IN_MOVED_FROM != 0:
		return "rename"
	case mask&unix.IN_MODIFY != 0:
		return "write"
	}
	return "chmod"
}

func (w *watcher) write(kind, path string) error {
	rel, err := filepath.Rel(w.root, path)
	if err != nil {
		return nil
	}
	e := Event{Name: rel, Type: kind}
	if kind == "create" || kind == "write" || kind == "chmod" {
		if info, err := w.info(path); err == nil {
			e.Info = &info
		}
	}
	return json.NewEncoder(w.out).Encode(e)
}
