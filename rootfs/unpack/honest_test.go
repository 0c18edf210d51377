package unpack

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/rootfs/internal/nstest"
	"demesne/rootfs/layers"
)

// TestFiles checks that the files of a benign layer are as the layer describes them.
func TestFiles(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	s := newStore(t)
	long := strings.Repeat(strings.Repeat("n", 200)+"/", 19) + "file" // as long as a path may be
	fs := s.must(
		entry{name: "./", kind: dir, mode: 0o711},
		entry{name: "bin", kind: dir, mode: 0o755},
		entry{name: "bin/su", body: "su", mode: 0o4755},
		entry{name: "bin/hard", kind: link, link: "bin/su"},
		entry{name: "bin/soft", kind: symlink, link: "/bin/su"},
		entry{name: "tmp", kind: dir, mode: 0o1777},
		entry{name: "ro", kind: dir, mode: 0o555},
		entry{name: "ro/none", body: "x", mode: 0o1},
		entry{name: "ro/none", body: "y", mode: 0o40},
		entry{name: "implied/by/file", body: strings.Repeat("z", chunkSize+1)},
		entry{name: "fifo", kind: tar.TypeFifo, mode: 0o600},
		entry{name: "latin\xff1", body: "?"},
		entry{name: long, body: "long"},
	)
	for name, want := range map[string]os.FileMode{
		".": os.ModeDir | 0o711, "bin/su": os.ModeSetuid | 0o755, "bin/hard": os.ModeSetuid | 0o755, "bin/soft": os.ModeSymlink | 0o777,
		"tmp": os.ModeDir | os.ModeSticky | 0o777, "ro": os.ModeDir | 0o555, "ro/none": 0o40, "implied": os.ModeDir | 0o755,
		"fifo": os.ModeNamedPipe | 0o600, "latin\xff1": 0o644,
	} {
		if info, err := os.Lstat(fs + "/" + name); err != nil || info.Mode() != want {
			t.Errorf("%q is %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
	a, _ := os.Stat(fs + "/bin/su")
	b, _ := os.Stat(fs + "/bin/hard")
	if !os.SameFile(a, b) {
		t.Error("a hard link is another file")
	}
	if got, err := os.ReadFile(fs + "/implied/by/file"); err != nil || len(got) != chunkSize+1 {
		t.Errorf("a file of several pieces has %d bytes, %v", len(got), err)
	}
	if err := os.Chdir(fs); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(long); err != nil || string(got) != "long" {
		t.Errorf("the file with the long path: %q, %v", got, err)
	}
}

// TestTimes checks that times are the archive's, even of directories written to afterwards.
func TestTimes(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	var b bytes.Buffer
	w, then := tar.NewWriter(&b), time.Unix(1_000_000_000, 123_000_000)
	for _, e := range []entry{{name: "d", kind: dir}, {name: "d/f", body: "x"}, {name: "d/l", kind: symlink, link: "f"}, {name: "d/.wh.x"}} {
		h := e.header()
		h.ModTime = then
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		w.Write([]byte(e.body))
	}
	w.Close()
	s := newStore(t)
	l := s.add(b.Bytes(), b.Bytes())
	if err := s.run(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"d", "d/f", "d/l"} {
		if info, err := os.Lstat(s.fs(l) + "/" + name); err != nil || !info.ModTime().Equal(then) {
			t.Errorf("%s is of %v, %v; want %v", name, info.ModTime(), err, then)
		}
	}
}

// TestOwners checks that files have their own owner if it is mapped. Otherwise root owns them, without setuid bits,
// and the owner is recorded.
func TestOwners(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	s := newStore(t)
	fs := s.must(
		entry{name: "root", mode: 0o6755},
		entry{name: "user", uid: 1000, gid: 65535, mode: 0o6755},
		entry{name: "big", uid: 65536, gid: 1 << 31, mode: 0o6755},
		entry{name: "dir", kind: dir, uid: 1 << 40, gid: 1 << 40, mode: 0o2755},
		entry{name: "link", kind: symlink, link: "x", uid: 70000},
		// Another program recorded owners that it could not set.
		entry{name: "told", mode: 0o755, xattrs: map[string]string{layers.OwnerAttr: "\x08\xe8\x07\x10\xff\xff\x03"}},
		entry{name: "half", gid: 5, mode: 0o755, xattrs: map[string]string{layers.OwnerAttr: "\x08\xe8\x07\x10\xff\xff\xff\xff\x0f"}},
	)
	type want struct {
		uid, gid uint32
		mode     os.FileMode
		record   string
	}
	both := os.ModeSetuid | os.ModeSetgid
	wants := map[string]want{
		"root": {0, 0, both | 0o755, ""},
		"user": {1000, 65535, both | 0o755, ""},
		"big":  {0, 0, 0o755, "\x08\x80\x80\x04\x10\x80\x80\x80\x80\x08"},
		"dir":  {0, 0, os.ModeDir | os.ModeSetgid | 0o755, "\x08\x00\x10\x00"},
		"link": {0, 0, os.ModeSymlink | 0o777, ""}, // links have no user.* attributes
		"told": {1000, 65535, 0o755, ""},
		"half": {1000, 5, 0o755, ""},
	}
	if !nstest.Many() {
		wants["told"] = want{0, 0, 0o755, "\x08\xe8\x07\x10\xff\xff\x03"}
		wants["half"] = want{0, 0, 0o755, "\x08\xe8\x07\x10\x05"}
		wants["user"] = want{0, 0, 0o755, "\x08\xe8\x07\x10\xff\xff\x03"}
	}
	for name, w := range wants {
		info, err := os.Lstat(fs + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		st := info.Sys().(*syscall.Stat_t)
		buf := make([]byte, 64)
		n, _ := unix.Lgetxattr(fs+"/"+name, layers.OwnerAttr, buf)
		if got := (want{st.Uid, st.Gid, info.Mode(), string(buf[:max(n, 0)])}); got != w {
			t.Errorf("%s is %+v, want %+v", name, got, w)
		}
	}
	if n := s.notes().Owners; nstest.Many() && n != 3 || !nstest.Many() && n != 6 {
		t.Errorf("notes are %+v", s.notes())
	}
}

// TestCapabilities checks that a program keeps its capabilities, for this user namespace and those below.
func TestCapabilities(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	caps := binary.LittleEndian.AppendUint32(nil, 0x02000001) // version 2, effective
	caps = append(caps, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	fs := newStore(t).must(entry{name: "ping", body: "x", mode: 0o755, xattrs: map[string]string{"security.capability": string(caps)}},
		entry{name: "d", kind: dir, xattrs: map[string]string{"security.capability": string(caps)}})
	got := make([]byte, 64)
	n, err := unix.Lgetxattr(fs+"/ping", "security.capability", got)
	if err != nil || !bytes.Equal(got[:n], caps) {
		t.Errorf("security.capability is %x, %v; want %x", got[:max(n, 0)], err, caps)
	}
	if got := xattrs(t, fs+"/d"); got != "" {
		t.Errorf("a directory has %q", got)
	}
}

// TestWhiteouts checks that layers stacked by overlayfs hide the names of their whiteouts.
func TestWhiteouts(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	s := newStore(t)
	below := s.must(entry{name: "file"}, entry{name: "stays"}, entry{name: "dir/a"}, entry{name: "dir/b"}, entry{name: "opaque/old"}, entry{name: "gone/x"},
		entry{name: "again/old"}, entry{name: "inner/sub/old"})
	above := s.must(entry{name: ".wh.file"}, entry{name: "dir", kind: dir}, entry{name: "dir/.wh.a", kind: symlink, link: "x"},
		entry{name: "opaque/first"}, entry{name: "opaque/.wh..wh..opq"}, entry{name: "opaque/new"}, entry{name: "opaque/.wh.old"}, entry{name: ".wh.gone"},
		entry{name: ".wh.again"}, entry{name: "again/new"}, entry{name: "inner/.wh..wh..opq"}, entry{name: ".wh.missing", kind: dir})
	for _, dir := range []string{below, above} {
		if strings.ContainsAny(dir, ":,") {
			t.Fatalf("%q cannot be an option", dir)
		}
	}
	at := t.TempDir()
	if err := unix.Mount("overlay", at, "overlay", 0, "userxattr,lowerdir="+above+":"+below); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(at, unix.MNT_DETACH)
	var got []string
	filepath.Walk(at, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			t.Error(err)
		} else if !info.IsDir() {
			got = append(got, strings.TrimPrefix(path, at+"/"))
		}
		return nil
	})
	if want := []string{"again/new", "dir/b", "opaque/first", "opaque/new", "stays"}; !slices.Equal(got, want) {
		t.Errorf("stacked, there are %q, want %q", got, want)
	}
}

// TestOpaqueRoot checks that a layer that is opaque at its root is marked so for [layers.Cache.Hold].
func TestOpaqueRoot(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	fs := newStore(t).must(entry{name: "./", kind: dir}, entry{name: ".wh..wh..opq"}, entry{name: "new"})
	if got := xattrs(t, fs); got != "user.overlay.opaque" {
		t.Errorf("the root has %q", got)
	}
}

// TestDiskFull checks that a layer that does not fit is refused before it fills the disk, and that the cache does
// not change.
func TestDiskFull(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	s := newStore(t)
	if err := unix.Mount("tmpfs", s.dir, "tmpfs", 0, "size=40m"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(s.dir, unix.MNT_DETACH)
	s.must(entry{name: "a", body: "small"})
	for name, body := range map[string]int{"one file": 20 << 20, "a file that fits, but for the margin": 10 << 20} {
		_, err := s.unpack(entry{name: "x", body: "x"}, entry{name: "b", body: strings.Repeat("b", body)})
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%s: got %v", name, err)
		}
		s.untouched(1)
	}
}
