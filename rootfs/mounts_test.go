package rootfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/rootfs/internal/nstest"
)

// tangle makes a directory with files to protect.
func tangle(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"a/b/secret/f", "a/b/free", "top"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(dir+"/"+name), 0o755), os.WriteFile(dir+"/"+name, []byte("host"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(dir+"/a/b/secret/fifo", 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mountsOf(dir string) []Mount {
	return []Mount{
		{Source{Path: dir}, "/new/w", false, Source{}},
		{Source{Path: dir + "/a/b/secret"}, "/new/w/a/b/secret", true, Source{}},
		{Source{Path: dir + "/top"}, "/new/w/top", true, Source{}},
		{Source{Path: dir}, "/in/deep/er", true, Source{}},
		{Source{Path: dir + "/top"}, "/in/file", true, Source{}},
		{Source{Path: dir}, "/out", false, Source{}},
	}
}

// checkMounts checks a tree with mountsOf dir.
func checkMounts(t *testing.T, tree *Tree, dir string) {
	t.Helper()
	w := tree.Root + "/new/w"
	for path, want := range map[string]error{
		w + "/a/b/secret/x": unix.EROFS, w + "/a/b/x": nil, w + "/top": unix.EROFS, w + "/x": nil, tree.Root + "/in/x": unix.EROFS,
		tree.Root + "/in/deep/er/x": unix.EROFS, tree.Root + "/in/deep/x": unix.EROFS, tree.Root + "/out/y": nil,
	} {
		if err := os.WriteFile(path, nil, 0o644); !errors.Is(err, want) {
			t.Errorf("write %s: %v, want %v", path, err, want)
		}
	}
	for _, name := range []string{"a", "a/b", "a/b/secret", "top"} {
		if err := os.Rename(w+"/"+name, w+"/"+name+"2"); !errors.Is(err, unix.EBUSY) {
			t.Errorf("rename %s: %v", name, err)
		}
	}
	if fd, err := unix.Open(w+"/a/b/secret/fifo", unix.O_WRONLY|unix.O_NONBLOCK, 0); err != unix.EACCES {
		t.Errorf("open a fifo of the host for writing: %d, %v", fd, err)
	}
	for _, name := range []string{"new", "in/deep"} {
		if fi, err := os.Lstat(tree.Root + "/" + name); err != nil || fi.Mode() != os.ModeDir|0o755 {
			t.Errorf("/%s: %v, %v", name, fi, err)
		}
	}
	view, err := tree.OpenDir("/new/w")
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	// A walk that enters no mount still finds everything.
	fd, err := unix.Openat2(int(view.Fd()), "a/b/secret/f", &unix.OpenHow{Flags: unix.O_RDWR, Resolve: unix.RESOLVE_NO_XDEV})
	if err != nil {
		t.Errorf("open a hidden file in the view: %v", err)
	}
	unix.Close(fd)
	if list, _ := os.ReadDir(dir); len(list) != 4 { // a, top, x, y
		t.Errorf("made on the host: %v", list)
	}
}

// TestMountAll mounts over parts of writable mounts, on each kind of tree.
func TestMountAll(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	layout := func(dir string) Layout {
		return Layout{Dir: nstest.Tmpfs(t), Mounts: mountsOf(dir), Inputs: []Bind{{"self", Source{Path: "/usr/bin"}}}}
	}
	t.Run("host", func(t *testing.T) {
		dir := tangle(t)
		checkMounts(t, mounted(t, layout(dir)), dir)
	})
	trees(t, func(t *testing.T, i Image) {
		dir := tangle(t)
		layer := nstest.Dir(t)
		checkMounts(t, image(t, layout(dir), i, layer), dir)
	})
	kept := nstest.Dir(t)
	for range 2 { // the second time over the mount points of the first
		t.Run("kept", func(t *testing.T) {
			dir := tangle(t)
			l := layout(dir)
			l.Kept = kept
			tree := mounted(t, l)
			if tree.Upper != UpperKept {
				t.Skip(tree.KeptWhy)
			}
			checkMounts(t, tree, dir)
		})
	}
}

// TestMountAllRefused checks mounts that no tree can have. They leave nothing on the host.
func TestMountAllRefused(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	dir, swapped := tangle(t), tangle(t)
	if err := os.Symlink("a", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	checked, err := os.Open(swapped)
	if err != nil {
		t.Fatal(err)
	}
	defer checked.Close()
	if err := errors.Join(os.Rename(swapped, swapped+"2"), os.Symlink(dir, swapped)); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		mount Mount
		want  error
		text  string
	}{
		{Mount{Source: Source{Path: dir}, Target: "/w/none", ReadOnly: false}, ErrNoPlace, ""},
		{Mount{Source: Source{Path: dir}, Target: "/w/a/none/x", ReadOnly: true}, ErrNoPlace, ""},
		{Mount{Source: Source{Path: dir}, Target: "/usr/none", ReadOnly: true}, ErrNoPlace, ""},
		{Mount{Source: Source{Path: dir}, Target: "/w/link/b", ReadOnly: true}, unix.ELOOP, ""},
		{Mount{Source: Source{Path: dir + "/top"}, Target: "/w/link", ReadOnly: true}, unix.ELOOP, ""},
		{Mount{Source: Source{Path: dir}, Target: "/w/top", ReadOnly: true}, unix.ENOTDIR, ""},
		{Mount{Source: Source{Path: dir + "/top"}, Target: "/w/a", ReadOnly: true}, unix.EISDIR, ""},
		{Mount{Source: Source{Path: dir + "/top"}, Target: "/x", ReadOnly: false}, nil, "only a directory"},
		{Mount{Source: Source{Path: dir + "/a/b/secret/fifo"}, Target: "/x", ReadOnly: true}, nil, "not a regular file"},
		{Mount{Source: Source{Path: swapped}, Target: "/x", ReadOnly: true}, nil, "not a regular file"},
		{Mount{Source: Source{Path: swapped + "2", Same: os.Stdin}, Target: "/x", ReadOnly: true}, errChanged, ""},
		{Mount{Source: Source{Path: dir}, Target: "/x/../y", ReadOnly: true}, nil, "plain"},
		{Mount{Source: Source{Path: dir}, Target: "/x//y", ReadOnly: true}, nil, "plain"},
	} {
		w := Mount{Source: Source{Path: dir}, Target: "/w"}
		tree, err := MountHost(Layout{Dir: nstest.Tmpfs(t), Mounts: []Mount{w, row.mount}})
		if err == nil {
			tree.Unmount()
		}
		if err == nil || !errors.Is(err, row.want) && row.want != nil || !strings.Contains(err.Error(), row.text) {
			t.Errorf("%+v: %v, want %v %s", row.mount, err, row.want, row.text)
		}
	}
	if list, _ := os.ReadDir(dir); len(list) != 3 {
		t.Errorf("made on the host: %v", list)
	}
}
