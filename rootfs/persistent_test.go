package rootfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/rootfs/internal/nstest"
)

// rounds makes a tree over the same kept directory once for each function, and calls the function with it.
func rounds(t *testing.T, mount func(Layout) (*Tree, error), below []*os.File, use ...func(root string)) {
	t.Helper()
	kept := nstest.Dir(t)
	for n, f := range use {
		tree, err := mount(Layout{Dir: nstest.Tmpfs(t), Kept: kept, Below: below, Hostname: "box"})
		if err != nil {
			t.Fatal(err)
		}
		if tree.Upper != UpperKept {
			t.Fatalf("round %d: the upper is %q: %v", n, tree.Upper, tree.KeptWhy)
		}
		f(tree.Root)
		if err := tree.Unmount(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKeptHost(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	rounds(t, MountHost, nil, func(root string) {
		for name, content := range map[string]string{"root/f": "f", "workspace/w": "w", "etc/hosts": "mine", "opt/new": "new", "var/lib/x": "x"} {
			if err := os.WriteFile(root+"/"+name, []byte(content), 0o600); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(os.Remove(root+"/etc/services"), os.Chmod(root, 0o711)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		if err := os.WriteFile(root+"/usr/planted", nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("write to /usr: %v", err)
		}
	}, func(root string) {
		for name, content := range map[string]string{"root/f": "f", "workspace/w": "w", "etc/hosts": "mine", "opt/new": "new", "var/lib/x": "x", "etc/hostname": "box\n"} {
			if b, err := os.ReadFile(root + "/" + name); err != nil || string(b) != content {
				t.Errorf("/%s: %q, %v", name, b, err)
			}
		}
		if _, err := os.Lstat(root + "/etc/services"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("what was removed is back: %v", err)
		}
		if st, err := os.Stat(root); err != nil || st.Mode().Perm() != 0o711 {
			t.Errorf("/ has mode %v, %v", st.Mode(), err)
		}
		if _, err := os.Stat(root + "/usr/bin/env"); err != nil {
			t.Error(err)
		}
	})
}

// TestKeptHostile checks that files a sandbox leaves at mount points lead nowhere when the tree is made again.
func TestKeptHostile(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	outside := t.TempDir()
	for _, name := range []string{"etc", "pki", "ssl", "usr", "out", "in", "workspace", "proc", "dev", "sys", "tmp"} {
		if err := os.Mkdir(filepath.Join(outside, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	plant := func(names ...string) *os.File {
		kept := nstest.Dir(t)
		if err := os.Mkdir(kept.Name()+"/up", 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			path := kept.Name() + "/up/" + name
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(filepath.Join(outside, filepath.Base(name)), path)); err != nil {
				t.Fatal(err)
			}
		}
		return kept
	}
	for _, names := range [][]string{
		{"etc"}, {"usr"}, {"out", "in", "workspace"}, {"proc", "dev", "sys"}, {"tmp"},
		{"etc/alternatives", "etc/ssl", "etc/ld.so.cache"}, {"etc/pki"},
	} {
		kept := plant(names...)
		tree, err := MountHost(Layout{Dir: nstest.Tmpfs(t), Kept: kept, Out: Source{Path: t.TempDir()}})
		if err != nil {
			t.Errorf("%v: %v", names, err)
			continue
		}
		if tree.Upper != UpperKept {
			t.Errorf("%v: the upper is %q: %v", names, tree.Upper, tree.KeptWhy)
		}
		mounts, _ := os.ReadFile("/proc/self/mountinfo")
		if strings.Contains(string(mounts), outside) {
			t.Errorf("%v: something was mounted in %s", names, outside)
		}
		filepath.WalkDir(outside, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.IsDir() {
				t.Errorf("%v: %s was made outside (%v)", names, path, err)
			}
			return nil
		})
		for _, name := range []string{"usr", "out", "in", "workspace", "proc", "dev", "sys"} {
			if st, err := os.Lstat(tree.Root + "/" + name); err != nil || !st.IsDir() {
				t.Errorf("%v: /%s is no directory: %v", names, name, err)
			}
		}
		if err := tree.Unmount(); err != nil {
			t.Error(err)
		}
	}
}

func TestKeptImage(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	bottom := nstest.Layer(t, map[string]string{"bin/sh": "sh", "etc/passwd": "root:x:0:0::/root:/bin/sh\n", "opt/a": "a"})
	earlier := nstest.Layer(t, map[string]string{"opt/a": "!", "opt/b": "b"})
	for _, row := range []struct {
		name   string
		lowers []*os.File
		below  []*os.File
		want   string // of /opt, first
	}{
		{"layers", []*os.File{bottom}, nil, "a"},
		{"over an earlier one's files", []*os.File{bottom}, []*os.File{earlier}, "b"},
		{"nothing", nil, nil, ""},
		{"nothing but an earlier one's files", nil, []*os.File{bottom}, "a"},
	} {
		mount := func(l Layout) (*Tree, error) { return tryImage(t, l, Image{}, row.lowers...) }
		rounds(t, mount, row.below, func(root string) {
			list, _ := os.ReadDir(root + "/opt")
			var names []string
			for _, e := range list {
				names = append(names, e.Name())
			}
			if got := strings.Join(names, " "); got != row.want {
				t.Errorf("%s: /opt has %q, want %q", row.name, got, row.want)
			}
			if err := errors.Join(os.MkdirAll(root+"/opt", 0o755), os.WriteFile(root+"/opt/new", []byte("new"), 0o644)); err != nil {
				t.Error(err)
			}
		}, func(root string) {
			if b, err := os.ReadFile(root + "/opt/new"); err != nil || string(b) != "new" {
				t.Errorf("%s: %q, %v", row.name, b, err)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(bottom.Name(), "opt/new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a layer was changed: %v", err)
	}
}

// TestKeptNot checks that the tree is made even if the upper cannot be kept, and that it reports so.
func TestKeptNot(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	kept, err := os.Open("/proc/self/fd") // no directories can be made in it
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	for name, mount := range map[string]func(Layout) (*Tree, error){
		"host": MountHost,
		"image": func(l Layout) (*Tree, error) {
			return tryImage(t, l, Image{}, nstest.Layer(t, map[string]string{"a": "a"}))
		},
		"empty": func(l Layout) (*Tree, error) { return tryImage(t, l, Image{}) },
	} {
		tree, err := mount(Layout{Dir: nstest.Tmpfs(t), Kept: kept})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if tree.Upper != UpperTmpfs || tree.KeptWhy == nil {
			t.Errorf("%s: upper %q, %v", name, tree.Upper, tree.KeptWhy)
		}
		if err := os.WriteFile(tree.Root+"/tmp/f", nil, 0o600); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		tree.Unmount()
	}
}
