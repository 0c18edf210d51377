package archive

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// plant makes a directory with every kind of file that a root file system may have.
func plant(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "etc/deep"), 0o755),
		os.Mkdir(filepath.Join(dir, "tmp"), 0o777),
		os.Chmod(filepath.Join(dir, "tmp"), os.ModeSticky|0o777),
		os.WriteFile(filepath.Join(dir, "etc/file"), []byte("text"), 0o640),
		os.WriteFile(filepath.Join(dir, "etc/deep/prog"), []byte("#!"), 0o755),
		os.Chmod(filepath.Join(dir, "etc/deep/prog"), os.ModeSetuid|0o755),
		os.Link(filepath.Join(dir, "etc/file"), filepath.Join(dir, "etc/same")),
		os.Symlink(outside, filepath.Join(dir, "etc/out")),
		os.Symlink(filepath.Dir(outside), filepath.Join(dir, "etc/outdir")),
		os.Symlink("../../../../etc/passwd", filepath.Join(dir, "up")),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestImportDirectory checks that everything a tar can represent is imported. Links are imported as links, wherever
// they lead. Each omitted file is reported.
func TestImportDirectory(t *testing.T) {
	dir := plant(t)
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := openStore(t)
	img, notices := imported(t, s, dir, "mine")
	got := exported(t, s, img)
	outside, _ := os.Readlink(filepath.Join(dir, "etc/out"))
	want := []string{
		"./", "etc/", "etc/deep/", "etc/deep/prog #!", "etc/file text", "etc/out -> " + outside,
		"etc/outdir -> " + filepath.Dir(outside), "etc/same = etc/file", "pipe ?6", "tmp/", "up -> ../../../../etc/passwd",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
	if len(notices) != 1 || !strings.Contains(notices[0], "socket") {
		t.Errorf("told %q", notices)
	}
	again, _ := imported(t, s, dir, "again")
	if again.Digest != img.Digest {
		t.Errorf("twice imported it is %s and %s", img.Digest, again.Digest)
	}
}

// TestImportDirectoryMeta checks that modes, owners and attributes are kept, and that the caller's own files become
// root's.
func TestImportDirectoryMeta(t *testing.T) {
	dir := plant(t)
	if err := unix.Setxattr(filepath.Join(dir, "etc/file"), "user.note", []byte("x\x00y"), 0); err != nil {
		t.Logf("no user.* attributes here: %v", err)
	}
	s := openStore(t)
	img, _ := imported(t, s, dir, "mine")
	for _, h := range headers(t, s, img) {
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s belongs to %d:%d %q", h.Name, h.Uid, h.Gid, h.Uname)
		}
		modes := map[string]int64{"tmp/": 0o1777, "etc/deep/prog": 0o4755, "etc/file": 0o640}
		if want, ok := modes[h.Name]; ok && h.Mode != want {
			t.Errorf("%s has mode %o, not %o", h.Name, h.Mode, want)
		}
		value := make([]byte, 10)
		n, err := unix.Getxattr(filepath.Join(dir, "etc/file"), "user.note", value)
		if h.Name == "etc/file" && err == nil && h.PAXRecords["SCHILY.xattr.user.note"] != string(value[:n]) {
			t.Errorf("its attribute is %q", h.PAXRecords)
		}
	}
}

// TestImportSwapped replaces a directory by a link to its neighbour during the import. The neighbour's files must not
// appear under the directory's name.
func TestImportSwapped(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(dir+"/mine", 0o755), os.Mkdir(dir+"/other", 0o755), os.WriteFile(dir+"/other/o", nil, 0o644), os.Symlink("other", dir+"/link")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for ctx.Err() == nil {
			unix.Renameat2(unix.AT_FDCWD, dir+"/mine", unix.AT_FDCWD, dir+"/link", unix.RENAME_EXCHANGE)
		}
	})
	for range 2000 {
		var got bytes.Buffer
		writeTree(t.Context(), root, &got, func(string) {}) // may fail
		if bytes.Contains(got.Bytes(), []byte("mine/o")) || bytes.Contains(got.Bytes(), []byte("link/o")) {
			t.Error("the neighbour's was imported")
			break
		}
	}
	cancel()
	swapper.Wait()
}

// TestImportRootOwners checks that root imports every owner unchanged.
func TestImportRootOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("the ids of others take root to make")
		return
	}
	dir := plant(t)
	if err := os.Lchown(filepath.Join(dir, "etc/file"), 1234, 70000); err != nil {
		t.Fatal(err)
	}
	s := openStore(t)
	img, _ := imported(t, s, dir, "mine")
	for _, h := range headers(t, s, img) {
		if h.Name == "etc/file" && (h.Uid != 1234 || h.Gid != 70000) {
			t.Errorf("it belongs to %d:%d", h.Uid, h.Gid)
		}
	}
}

// TestImportUnreadable checks that an unreadable file is an error and not omitted.
func TestImportUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("root reads everything")
		return
	}
	dir := plant(t)
	if err := os.Chmod(filepath.Join(dir, "etc/file"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Import(t.Context(), openStore(t), dir, ref(t, "mine"), nil); err == nil {
		t.Error("it was imported")
	}
}
