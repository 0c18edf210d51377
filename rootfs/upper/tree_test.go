package upper_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/rootfs"
	"demesne/rootfs/internal/nstest"
)

// tree mounts a tree over a layer and earlier uppers, which writes to kept.
func tree(t *testing.T, low, kept *os.File, below ...*os.File) *rootfs.Tree {
	t.Helper()
	i := rootfs.Image{Lowers: []*os.File{low}, UIDs: 1, GIDs: 1}
	if nstest.Many() {
		i.UIDs, i.GIDs = 65536, 65536
	}
	tree, err := rootfs.MountImage(rootfs.Layout{Dir: nstest.Tmpfs(t), Kept: kept, Below: below, Hostname: "box"}, i)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.Unmount(); err != nil {
			t.Error(err)
		}
	})
	if tree.Upper != rootfs.UpperKept {
		t.Fatalf("the upper is %q: %v", tree.Upper, tree.KeptWhy)
	}
	return tree
}

// attributes returns the attributes of a file of an upper that its copy must have too, by name.
func attributes(at *os.File, name string) (map[string]string, error) {
	file, list, value := fsutil.FDPath(int(at.Fd()))+"/"+name, make([]byte, 4096), make([]byte, 4096)
	found := map[string]string{}
	n, err := unix.Llistxattr(file, list)
	for _, key := range strings.Split(string(list[:max(n, 0)]), "\x00") {
		switch key {
		case "", "user.overlay.origin", "user.overlay.impure", "user.overlay.nlink", "user.overlay.uuid", "user.overlay.upper":
			continue
		}
		n, gerr := unix.Lgetxattr(file, key, value)
		found[key], err = string(value[:max(n, 0)]), errors.Join(err, gerr)
	}
	return found, err
}
