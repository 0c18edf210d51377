package rootfs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/rootfs/internal/nstest"
)

func TestInputs(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	dir := t.TempDir()
	file, sub, link := filepath.Join(dir, "file"), filepath.Join(dir, "sub"), filepath.Join(dir, "link")
	fifo, socket := filepath.Join(dir, "fifo"), filepath.Join(dir, "socket")
	if err := errors.Join(os.WriteFile(file, []byte("hello"), 0o600), os.Mkdir(sub, 0o755), os.Symlink(file, link),
		unix.Mkfifo(fifo, 0o600), unix.Mknod(socket, unix.S_IFSOCK|0o600, 0), os.WriteFile(filepath.Join(sub, "below"), []byte("deep"), 0o600)); err != nil {
		t.Fatal(err)
	}
	// A mount below an input comes with it.
	if err := unix.Mount("tmpfs", sub, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(sub, unix.MNT_DETACH)
	if err := os.WriteFile(filepath.Join(sub, "below"), []byte("mounted"), 0o600); err != nil {
		t.Fatal(err)
	}
	same, other := nstest.Open(t, file), nstest.Open(t, sub)
	for _, row := range []struct {
		name   string
		source Source
		path   string // of a file inside /in/x
		want   string // its content, or the error
	}{
		{"file", Source{Path: file}, "", "hello"},
		{"directory with a mount", Source{Path: dir}, "sub/below", "mounted"},
		{"directory with locked mounts", Source{Path: "/proc/sys"}, "kernel/ostype", "Linux\n"},
		{"checked", Source{Path: file, Same: same}, "", "hello"},
		{"swapped", Source{Path: file, Same: other}, "", errChanged.Error()},
		{"link", Source{Path: link}, "", "not a regular file or directory"},
		{"link checked", Source{Path: link, Same: same}, "", "not a regular file or directory"},
		{"link on the way", Source{Path: "/proc/self/root" + file}, "", unix.ELOOP.Error()},
		{"fifo", Source{Path: fifo}, "", "not a regular file or directory"},
		{"device", Source{Path: "/dev/null"}, "", "not a regular file or directory"},
		{"socket", Source{Path: socket}, "", "not a regular file or directory"},
		{"file, not a socket", Source{Path: file, Socket: true}, "", "not a socket"},
		{"nothing", Source{}, "", unix.ENOENT.Error()},
	} {
		t.Run(row.name, func(t *testing.T) {
			tree, err := MountHost(Layout{Dir: nstest.Tmpfs(t), Inputs: []Bind{{"x", row.source}}})
			if err != nil {
				if !strings.HasSuffix(err.Error(), ": "+row.want) {
					t.Errorf("got error %v, want %s", err, row.want)
				}
				return
			}
			defer tree.Unmount()
			path := filepath.Join(tree.Root, "in/x", row.path)
			content, err := os.ReadFile(path)
			if err != nil || string(content) != row.want {
				t.Errorf("read %q, %v, want %q", content, err, row.want)
			}
			if err := os.WriteFile(path, nil, 0); !errors.Is(err, unix.EROFS) {
				t.Errorf("write: %v, want EROFS", err)
			}
		})
	}
}

// TestDetached passes detached mounts as sources, as real root does.
func TestDetached(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	dir := t.TempDir()
	detached := func(attrs uint64) Source {
		fd, err := clone(unix.AT_FDCWD, dir, attrs)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), dir)
		t.Cleanup(func() { f.Close() })
		return Source{Mount: f}
	}
	sysfs, err := newFS("sysfs", attrBindRO|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	l := Layout{Inputs: []Bind{{"x", detached(0)}}, Out: detached(0), Workspace: detached(attrBindRO)}
	tree := mounted(t, l)
	f := os.NewFile(uintptr(sysfs), "sysfs")
	defer f.Close()
	if err := tree.MountSys(f); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{"in/x/f": unix.EROFS, "workspace/f": unix.EROFS, "out/f": nil, "sys/kernel/uevent_helper": unix.EROFS} {
		if err := os.WriteFile(filepath.Join(tree.Root, name), []byte("x"), 0o600); !errors.Is(err, want) {
			t.Errorf("write /%s: %v, want %v", name, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(tree.Root, "sys/class/net/lo")); err != nil {
		t.Error(err)
	}
}

// TestVerify checks that verify refuses a mount without the required attributes.
func TestVerify(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	fd, err := clone(unix.AT_FDCWD, nstest.Tmpfs(t), unix.MOUNT_ATTR_NOSUID)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for attrs, want := range map[uint64]string{
		unix.MOUNT_ATTR_NOSUID: "", unix.MOUNT_ATTR_RDONLY: "read-only", unix.MOUNT_ATTR_NODEV: "nodev",
	} {
		err := verify(fd, attrs)
		if (err == nil) != (want == "") || err != nil && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("attributes %#x: %v, want %q", attrs, err, want)
		}
	}
}

// TestIdmapped passes a mount made by real root into a user namespace that maps other ids. Files written through it
// must belong to root outside. The child is entered with the mount as fd 3.
func TestIdmapped(t *testing.T) {
	if nstest.Entered() {
		tree := mounted(t, Layout{Out: Source{Mount: os.NewFile(3, "out")}})
		if err := os.WriteFile(filepath.Join(tree.Root, "out/f"), []byte("x"), 0o644); err != nil {
			t.Error(err)
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs real root")
	}
	dir := t.TempDir()
	ids := nstest.Maps()[0]
	mount, err := idmapped(dir, ids)
	if err != nil {
		t.Skip("needs idmapped mounts: ", err)
	}
	defer mount.Close()
	cmd := nstest.Self("-test.run=^TestIdmapped$")
	nstest.Into(cmd, ids)
	cmd.ExtraFiles = []*os.File{mount}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "f"), &st); err != nil || st.Uid != 0 || st.Gid != 0 {
		t.Errorf("the file belongs to %d:%d (%v), want 0:0", st.Uid, st.Gid, err)
	}
}

// idmapped makes a detached mount of dir on which ids outside are those inside a user namespace.
func idmapped(dir string, ids syscall.SysProcIDMap) (*os.File, error) {
	holder := exec.Command("sleep", "60")
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, Pdeathsig: syscall.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{ids}, GidMappings: []syscall.SysProcIDMap{ids}}
	if err := holder.Start(); err != nil {
		return nil, err
	}
	defer holder.Wait()
	defer holder.Process.Kill()
	userns, err := os.Open("/proc/" + strconv.Itoa(holder.Process.Pid) + "/ns/user")
	if err != nil {
		return nil, err
	}
	defer userns.Close()
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), dir)
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | attrBind, Userns_fd: uint64(userns.Fd())})
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
