package fsutil

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpenat2Walk compares the walk with the kernel's openat2: the same file or the same error, for every combination of
// paths and flags below.
func TestOpenat2Walk(t *testing.T) {
	if HasOpenat2() != nil {
		t.Skip("needs openat2")
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, d := range []string{"root/a/b", "root/etc", "outside"} {
		if err := os.MkdirAll(at(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"root/a/f", "root/a/b/g", "root/etc/passwd", "outside/secret"} {
		if err := os.WriteFile(at(f), []byte(f), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"root/rel": "a/b", "root/up": "../outside", "root/abs": "/etc/passwd", "root/absdir": "/a", "root/a/upin": "../etc", "root/loop": "loop",
		"root/loop2": "a/loop3", "root/a/loop3": "../loop2", "root/dangling": "nowhere", "root/file": "a/f", "root/slash": "a/", "root/fileslash": "a/f/",
		"root/proc": "/proc/self/root", "root/fd": "/proc/self/fd/0", "root/self": "/proc/self", "root/dot": ".", "root/far": "rel/../../a/f",
	} {
		if err := os.Symlink(target, at(name)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := unix.Open(at("root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	paths := []string{
		"", ".", "./", "..", "../outside/secret", "a", "a/", "a/.", "a/..", "a/../..", "a/f", "a/f/", "a/f/.", "a/f/x", "a//b/./g", "rel", "rel/", "rel/g", "rel/../f", "up", "up/secret",
		"abs", "absdir", "absdir/f", "a/upin", "a/upin/passwd", "loop", "loop/", "loop2", "dangling", "dangling/", "file", "file/", "slash", "fileslash", "proc", "proc/etc",
		"fd", "self", "self/status", "dot", "dot/dot/a/f", "far", "missing", "missing/x", "/", "/a/f", "/etc/passwd", "/proc/self/exe", "/proc/self/root/etc",
		"/proc/self/fd/0", "/proc/mounts", "/..", at("root/a/f"), at("root/file"), at("root/rel/g"),
	}
	resolves := []uint64{
		unix.RESOLVE_NO_SYMLINKS, unix.RESOLVE_BENEATH, unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS, unix.RESOLVE_IN_ROOT, unix.RESOLVE_NO_MAGICLINKS,
		unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV, unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
		unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS,
	}
	flags := []uint64{
		unix.O_PATH, unix.O_PATH | unix.O_NOFOLLOW, unix.O_PATH | unix.O_DIRECTORY, unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW, unix.O_RDONLY | unix.O_NONBLOCK,
		unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK, unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW, unix.O_RDONLY | unix.O_DIRECTORY,
	}
	n := 0
	for _, path := range paths {
		for _, resolve := range resolves {
			for _, flag := range flags {
				how := &unix.OpenHow{Flags: flag | unix.O_CLOEXEC, Resolve: resolve}
				want, got := opened(unix.Openat2(root, path, how)), opened(walkTo(root, path, how))
				for want.err == unix.EAGAIN { // another process of the machine has renamed or mounted meanwhile
					want = opened(unix.Openat2(root, path, how))
				}
				if n++; got != want {
					t.Errorf("%q, resolve %#x, flags %#x: %+v, the kernel's is %+v", path, resolve, flag, got, want)
				}
			}
		}
	}
	t.Logf("%d calls", n)
}

type outcome struct {
	err      error
	dev, ino uint64
}

func opened(fd int, err error) outcome {
	if err != nil {
		return outcome{err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	return outcome{err, st.Dev, st.Ino}
}

// TestOpenat2Renames opens a path with ".." below a root while the machine is busy with renames. openat2(2) answers EAGAIN
// to some of these calls, and Openat2 must not.
func TestOpenat2Renames(t *testing.T) {
	if HasOpenat2() != nil {
		t.Skip("needs openat2")
	}
	dir := t.TempDir()
	for _, d := range []string{"a/b", "x", "y"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	var renames sync.WaitGroup
	done := make(chan bool)
	renames.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				unix.Renameat2(root, "x", root, "y", unix.RENAME_EXCHANGE)
			}
		}
	})
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH}
	path := strings.Repeat("a/../", 100) + "a/b"
	refused := 0
	for tries := 0; tries < 100_000 && refused < 100; tries++ {
		if opened(unix.Openat2(root, path, how)).err == unix.EAGAIN {
			refused++
		}
		if got := opened(Openat2(root, path, how)); got.err != nil {
			t.Fatal(got.err)
		}
	}
	close(done)
	renames.Wait()
	t.Logf("the kernel answered EAGAIN %d times", refused)
}

// TestOpenat2WalkMount checks that the walk stays on the mount of its start if it must.
func TestOpenat2WalkMount(t *testing.T) {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	for path, want := range map[string]error{"proc": unix.EXDEV, "proc/self": unix.EXDEV, "proc/../usr": unix.EXDEV, "usr": nil} {
		how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV}
		if got := opened(walkTo(root, path, how)); got.err != want {
			t.Errorf("%q: %v, want %v", path, got.err, want)
		}
	}
}

// TestOpenat2WalkSwaps swaps a directory with a link out of the root, and moves directories, while the walk runs. The
// walk never opens a file outside.
func TestOpenat2WalkSwaps(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, d := range []string{"root/a/b/c", "outside/b/c"} {
		if err := os.MkdirAll(at(d), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(d)+"/f", []byte(d), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../outside", at("root/l")); err != nil {
		t.Fatal(err)
	}
	root, err := unix.Open(at("root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	var swaps sync.WaitGroup
	done := make(chan bool)
	swaps.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				unix.Renameat2(root, "a", root, "l", unix.RENAME_EXCHANGE)
			}
		}
	})
	reached := 0
	for i := range 20_000 {
		path := []string{"a/b/c/f", "a/b/../b/c/f", "a/b/c/../../../a/b/c/f"}[i%3]
		how := &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC, Resolve: []uint64{unix.RESOLVE_BENEATH, unix.RESOLVE_IN_ROOT, unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}[i/3%3]}
		fd, err := walkTo(root, path, how)
		if err != nil {
			continue
		}
		var text [32]byte
		n, _ := unix.Read(fd, text[:])
		unix.Close(fd)
		if reached++; string(text[:n]) != "root/a/b/c" {
			t.Fatalf("%q led to %q", path, text[:n])
		}
	}
	close(done)
	swaps.Wait()
	if reached == 0 {
		t.Error("no walk reached the file")
	}
}
