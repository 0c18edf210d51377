package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/rootfs/internal/nstest"
)

func TestVisible(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	tree := mounted(t, Layout{Size: 16 << 20, Inputs: []Bind{{"self", Source{Path: "/usr/bin"}}}})
	withDev(t, tree)
	for _, row := range []struct {
		path string
		mode fs.FileMode
	}{
		{"", fs.ModeDir | 0o755},
		{"usr/bin", fs.ModeDir | 0o755},
		{"tmp", fs.ModeDir | fs.ModeSticky | 0o777},
		{"var/tmp", fs.ModeDir | fs.ModeSticky | 0o777},
		{"run/lock", fs.ModeDir | fs.ModeSticky | 0o777},
		{"root", fs.ModeDir | 0o700},
		{"sys", fs.ModeDir | 0o555},
		{"out", fs.ModeDir | 0o755},
		{"workspace", fs.ModeDir | 0o755},
		{"in/self", fs.ModeDir | 0o755},
		{"etc/passwd", 0o644},
		{"etc/resolv.conf", 0o644},
		{"etc/mtab", fs.ModeSymlink | 0o777},
		{"dev/null", fs.ModeDevice | fs.ModeCharDevice | 0o666},
		{"dev/shm", fs.ModeDir | fs.ModeSticky | 0o777},
		{"dev/ptmx", fs.ModeSymlink | 0o777},
		{"dev/pts/ptmx", fs.ModeDevice | fs.ModeCharDevice | 0o666},
	} {
		fi, err := os.Lstat(filepath.Join(tree.Root, row.path))
		if err != nil {
			t.Error(err)
		} else if fi.Mode() != row.mode {
			t.Errorf("/%s has mode %v, want %v", row.path, fi.Mode(), row.mode)
		}
	}
}

// TestHidden checks that the tree shows none of the host's state, even where the host has the files.
func TestHidden(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	tree := mounted(t, Layout{})
	withDev(t, tree)
	for _, name := range []string{"etc/shadow", "etc/shadow-", "etc/gshadow", "etc/ssh", "etc/sudoers", "etc/ssl/private",
		"etc/pki/tls/private", "etc/gitconfig", "etc/npmrc", "etc/pip.conf", "etc/machine-id", "etc/fstab", "etc/crontab",
		"run/docker.sock", "run/dbus", "run/user", "dev/kmsg", "dev/mem", "dev/sda", "dev/vda", "dev/kvm", "dev/fuse", "dev/vsock"} {
		if _, err := os.Lstat(filepath.Join(tree.Root, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("/%s exists inside: %v", name, err)
		}
	}
	for name, want := range map[string]string{
		"home": "", "root": "", "opt": "", "srv": "", "mnt": "", "media": "", "in": "", "tmp": "", "run": "lock",
		"var": "cache lib lock log run tmp", "var/lib": "", "var/log": "", "dev/shm": "", "dev/pts": "ptmx",
	} {
		list, err := os.ReadDir(filepath.Join(tree.Root, name))
		var names []string
		for _, e := range list {
			names = append(names, e.Name())
		}
		if got := strings.Join(names, " "); err != nil || got != want {
			t.Errorf("/%s holds %q (%v), want %q", name, got, err, want)
		}
	}
}

// TestFlags asks the kernel for the attributes of each mount, and tries to write.
func TestFlags(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	shared := t.TempDir()
	tree := mounted(t, Layout{Init: Source{Path: "/usr/bin/env"}, Out: Source{Path: shared}, Workspace: Source{Path: shared},
		Inputs: []Bind{{"dir", Source{Path: shared}}}})
	withDev(t, tree)
	const ro, nosuid, nodev, noexec = unix.ST_RDONLY, unix.ST_NOSUID, unix.ST_NODEV, unix.ST_NOEXEC
	for _, row := range []struct {
		path      string
		set, free int64 // flags that must be set, and flags that must not
		write     error
	}{
		{"", nosuid | nodev, ro | noexec, nil},
		{"usr", ro | nosuid | nodev, noexec, unix.EROFS},
		{"etc", nosuid | nodev, ro, nil},
		{"etc/alternatives", ro | nosuid | nodev, 0, unix.EROFS},
		{"in", ro | nosuid | nodev, noexec, unix.EROFS},
		{"in/dir", ro | nosuid | nodev, noexec, unix.EROFS},
		{"out", nosuid | nodev, ro, nil},
		{"workspace", nosuid | nodev, ro, nil},
		{"dev", ro | nosuid | noexec, nodev, unix.EROFS},
		{"dev/null", ro | nosuid | noexec, nodev, unix.ENOTDIR},
		{"dev/shm", nosuid | nodev, ro, nil},
		{"dev/" + initName, ro | nosuid | nodev, noexec, unix.ENOTDIR},
	} {
		path := filepath.Join(tree.Root, row.path)
		var st unix.Statfs_t
		if err := unix.Statfs(path, &st); errors.Is(err, fs.ErrNotExist) && row.path == "etc/alternatives" {
			continue
		} else if err != nil {
			t.Error(row.path, err)
		}
		if got := int64(st.Flags); got&row.set != row.set || got&row.free != 0 {
			t.Errorf("/%s has flags %#x, want %#x and not %#x", row.path, got, row.set, row.free)
		}
		err := os.WriteFile(filepath.Join(path, "probe"), []byte("x"), 0o600)
		if !errors.Is(err, row.write) {
			t.Errorf("write to /%s: %v, want %v", row.path, err, row.write)
		}
	}
	if out, err := inside(t, tree, "/dev/"+initName, "echo", "started"); err != nil || out != "started\n" {
		t.Errorf("init: %q, %v", out, err)
	}
}

func TestLimits(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	tree := mounted(t, Layout{Size: 4 << 20, Inodes: 400})
	withDev(t, tree)
	for _, name := range []string{"tmp/full", "dev/shm/full", "etc/full"} {
		path := filepath.Join(tree.Root, name)
		if err := os.WriteFile(path, make([]byte, 5<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("write 5 MiB to /%s: %v, want ENOSPC", name, err)
		}
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
	var err error
	for i := 0; i < 400 && err == nil; i++ {
		err = os.WriteFile(fmt.Sprintf("%s/tmp/%d", tree.Root, i), nil, 0o600)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("make 400 files: %v, want ENOSPC", err)
	}
}

func TestUser(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	tree := mounted(t, Layout{User: User{1000, 1001}})
	var want uint32 = 1000
	if !nstest.Many() {
		want = 0 // the id that the sandbox will map 1000 onto
	}
	for _, name := range []string{"home/user", "workspace", "out"} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(tree.Root, name), &st); err != nil || st.Uid != want {
			t.Errorf("/%s belongs to %d (%v), want %d", name, st.Uid, err, want)
		}
	}
}

// TestParallel makes many trees concurrently, under a umask that clears all bits for other users.
func TestParallel(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	unix.Umask(0o077)
	dir, before := nstest.Tmpfs(t), mountCount(t)
	var all sync.WaitGroup
	trees := make([]*Tree, 50)
	for i := range trees {
		all.Go(func() {
			d := fmt.Sprintf("%s/%d", dir, i)
			if err := os.Mkdir(d, 0o755); err != nil {
				t.Error(err)
			}
			tree, err := MountHost(Layout{Dir: d, Hostname: fmt.Sprint("box", i)})
			if err != nil {
				t.Error(err)
				return
			}
			trees[i] = tree
		})
	}
	all.Wait()
	for i, tree := range trees {
		if tree == nil {
			continue
		}
		name, err := os.ReadFile(tree.Root + "/etc/hostname")
		if want := fmt.Sprintf("box%d\n", i); err != nil || string(name) != want {
			t.Errorf("hostname %q, %v, want %q", name, err, want)
		}
		fi, err := os.Stat(tree.Root + "/etc/hostname")
		if err != nil || fi.Mode() != 0o644 {
			t.Errorf("hostname: %v, %v", fi.Mode(), err)
		}
		all.Go(func() {
			if err := errors.Join(tree.Unmount(), tree.Unmount()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if after := mountCount(t); after != before {
		t.Errorf("%d mounts afterwards, %d before", after, before)
	}
}

// TestUndo checks that a failure at any step of making a tree leaves nothing.
func TestUndo(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	file, shared := filepath.Join(t.TempDir(), "file"), t.TempDir()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	missing := Source{Path: "/nonexistent"}
	for name, l := range map[string]Layout{
		`bind /dev/.demesne-init: source "/nonexistent": open: no such file or directory`: {Init: missing},
		`bind /dev/.demesne-init: source "` + shared + `": not a regular file`:            {Init: Source{Path: shared}},
		`bind /out: source "/nonexistent": open: no such file or directory`:               {Out: missing},
		`bind /workspace: source "` + file + `": not a directory`:                         {Workspace: Source{Path: file}},
		`bind /in/x: source "/nonexistent": open: no such file or directory`:              {Inputs: []Bind{{"x", missing}}},
		`make /in/x: file exists`:                                            {Inputs: []Bind{{"x", Source{Path: file}}, {"x", Source{Path: file}}}},
		`bind /in: "../x" is not a plain file name`:                          {Inputs: []Bind{{"../x", Source{Path: file}}}},
		`hostname "a b": not a host name`:                                    {Hostname: "a b"},
		`write /etc/hostname: no space left on device`:                       {Size: 4096},
		`bind /in/null: source "/dev/null": not a regular file or directory`: {Inputs: []Bind{{"null", Source{Path: "/dev/null"}}}},
	} {
		l.Dir = nstest.Tmpfs(t)
		before, fds := mountCount(t), nstest.FDs(t)
		_, err := MountHost(l)
		if err == nil || err.Error() != name {
			t.Errorf("got error %v, want %s", err, name)
		}
		if after := mountCount(t); after != before {
			t.Errorf("%s: %d mounts afterwards, %d before", name, after, before)
		}
		if after := nstest.FDs(t); after != fds {
			t.Errorf("%s: %d descriptors afterwards, %d before", name, after, fds)
		}
		if left, _ := os.ReadDir(l.Dir); len(left) != 0 {
			t.Errorf("%s: left %v", name, left)
		}
	}
}

func mountCount(t *testing.T) int {
	t.Helper()
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(info), "\n")
}
