package integration

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// lockless is a file system that shows a directory and has no locks, as NFS without its lock service.
type lockless struct {
	*fs.LoopbackNode
	asked *atomic.Int64
}

var _ fs.NodeSetlker = (*lockless)(nil)
var _ fs.NodeSetlkwer = (*lockless)(nil)

func (n *lockless) Setlk(context.Context, fs.FileHandle, uint64, *fuse.FileLock, uint32) syscall.Errno {
	n.asked.Add(1)
	return syscall.ENOLCK
}

func (n *lockless) Setlkw(context.Context, fs.FileHandle, uint64, *fuse.FileLock, uint32) syscall.Errno {
	n.asked.Add(1)
	return syscall.ENOLCK
}

// mountLockless mounts dir at the path to, without locks. asked counts the requests for locks.
func mountLockless(t *testing.T, dir, to string, flags uintptr) (asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	root := &fs.LoopbackRoot{Path: dir}
	root.NewNode = func(*fs.LoopbackRoot, *fs.Inode, string, *syscall.Stat_t) fs.InodeEmbedder {
		return &lockless{&fs.LoopbackNode{RootData: root}, asked}
	}
	root.RootNode = root.NewNode(root, nil, "", nil)
	o := &fs.Options{MountOptions: fuse.MountOptions{EnableLocks: true, AllowOther: true, DirectMountStrict: true, DirectMountFlags: flags, Name: "lockless"}}
	server, err := fs.Mount(to, root.RootNode, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return asked
}

// TestImageSharedReadOnly runs an image of a store on a read-only file system without locks, and asks it for none. Where such a
// store is writable, a run is refused: another machine could remove the image.
func TestImageSharedReadOnly(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may mount a file system here")
	}
	b := newSite(t, newGallery(t)).gallery
	before := b.extra
	defer func() { b.extra = before }()
	b.ok("run", "--image", "local/bb", "--", "true") // unpacked once, by who may write
	for _, c := range []struct {
		name  string
		flags uintptr
		code  int
	}{{"read-only", syscall.MS_RDONLY, 0}, {"writable", 0, 125}} {
		dir := b.mkdir(c.name)
		asked := mountLockless(t, b.store, dir, c.flags)
		b.extra = append(slices.Clip(before), "DEMESNE_IMAGE_STORE="+dir)
		r := b.demesne("run", "--image", "local/bb", "--", "sh", "-c", "echo hi; echo x >/file")
		if r.code != c.code || r.code == 0 && (r.stdout != "hi\n" || asked.Load() > 0) || r.code != 0 && !strings.Contains(r.stderr, "no locks available") {
			t.Errorf("%s: %+v, %d locks", c.name, r, asked.Load())
		}
	}
}
