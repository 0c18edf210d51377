package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/rootfs/internal/nstest"
)

// image makes the tree of layers, the lowest first, and unmounts it at the end of the test.
func image(t testing.TB, l Layout, i Image, layers ...*os.File) *Tree {
	t.Helper()
	tree, err := tryImage(t, l, i, layers...)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func tryImage(t testing.TB, l Layout, i Image, layers ...*os.File) (*Tree, error) {
	t.Helper()
	if l.Dir == "" {
		l.Dir = nstest.Tmpfs(t)
	}
	i.Lowers = append(i.Lowers, layers...)
	if i.UIDs == 0 {
		i.UIDs, i.GIDs = 1, 1
		if nstest.Many() {
			i.UIDs, i.GIDs = 65536, 65536
		}
	}
	tree, err := MountImage(l, i)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := tree.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return tree, nil
}

// trees runs a test on each upper that this machine supports.
func trees(t *testing.T, test func(t *testing.T, i Image)) {
	t.Helper()
	t.Run("tmpfs", func(t *testing.T) { test(t, Image{}) })
	t.Run("disk", func(t *testing.T) {
		dir := t.TempDir()
		test(t, Image{lacks: lacks{tmpfs: true}, Scratch: func() (string, error) { return dir, nil }})
	})
	t.Run("copied", func(t *testing.T) { test(t, Image{lacks: lacks{overlay: true}}) })
	t.Run("old", func(t *testing.T) { test(t, Image{lacks: lacks{detached: true}}) })
}

func TestImageLayers(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	trees(t, func(t *testing.T, i Image) {
		low := nstest.Layer(t, map[string]string{"a": "low", "b": "low", "dir/gone": "low", "dir/kept": "low", "hidden/x": "low", "bin/tool": "#!"})
		mid := nstest.Layer(t, map[string]string{"b": "mid", "dir/gone": "!", "hidden/y": "mid"})
		if err := unix.Setxattr(filepath.Join(mid.Name(), "hidden"), "user.overlay.opaque", []byte("y"), 0); err != nil {
			t.Fatal(err)
		}
		top := nstest.Layer(t, map[string]string{"c": "→b"})
		tree := image(t, Layout{Size: 16 << 20}, i, low, mid, top)
		for name, want := range map[string]string{
			"a": "low", "b": "mid", "c": "→b", "dir/gone": "none", "dir/kept": "low", "hidden/x": "none", "hidden/y": "mid",
		} {
			if got := nstest.Content(tree.Root, name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		// These operations need overlayfs's attributes.
		for _, err := range []error{
			os.Rename(filepath.Join(tree.Root, "a"), filepath.Join(tree.Root, "z")),
			os.RemoveAll(filepath.Join(tree.Root, "dir")),
			os.Mkdir(filepath.Join(tree.Root, "dir"), 0o755),
			os.WriteFile(filepath.Join(tree.Root, "b"), []byte("new"), 0o644),
		} {
			if err != nil {
				t.Error(err)
			}
		}
		if nstest.Content(tree.Root, "z") != "low" || nstest.Content(tree.Root, "a") != "none" || nstest.Content(tree.Root, "dir/kept") != "none" {
			t.Error("changes are not seen")
		}
		for path, want := range map[string]string{"a": "low", "b": "low", "dir/kept": "low"} {
			if b, err := os.ReadFile(filepath.Join(low.Name(), path)); string(b) != want {
				t.Errorf("the layer's %s is %q (%v), want %q", path, b, err, want)
			}
		}
	})
}

// TestImageHostile tests the shapes of F8 and F9. Whatever an image has at the paths this package uses,
// the tree must mount, and nothing outside it may change.
func TestImageHostile(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	outside := t.TempDir()
	names := []string{"dev", "proc", "sys", "in", "out", "workspace", "tmp", "etc"}
	shapes := map[string]string{
		"link out": "→" + outside, "link up": "→../../../../../../.." + outside, "dangling": "→/nowhere/at/all",
		"magic link": "→/proc/self/root" + outside, "loop": "→loop", "file": "file", "fifo": "|", "missing": "",
	}
	for shape, what := range shapes {
		t.Run(shape, func(t *testing.T) {
			trees(t, func(t *testing.T, i Image) {
				files := map[string]string{"loop": "→loop", "bin/tool": "#!"}
				for _, name := range names {
					if what != "" {
						files[name] = what
					}
				}
				input, shared := t.TempDir(), t.TempDir()
				tree := image(t, Layout{Out: Source{Path: shared}, Inputs: []Bind{{"x", Source{Path: input}}}}, i, nstest.Layer(t, files))
				if _, err := os.Stat(filepath.Join(tree.Root, "in/x")); err != nil {
					t.Error(err)
				}
				for _, name := range names {
					if st, err := os.Lstat(filepath.Join(tree.Root, name)); err != nil || !st.IsDir() {
						t.Errorf("/%s is %v (%v), want a directory", name, st, err)
					}
				}
				if err := os.WriteFile(filepath.Join(tree.Root, "out/result"), nil, 0o644); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(filepath.Join(shared, "result")); err != nil {
					t.Error(err)
				}
				if err := os.WriteFile(filepath.Join(tree.Root, "in/x/y"), nil, 0o644); !errors.Is(err, unix.EROFS) {
					t.Errorf("write to an input: %v", err)
				}
				if got := nstest.Content(tree.Root, "etc/hostname"); got != "sandbox\n" {
					t.Errorf("/etc/hostname is %q", got)
				}
			})
		})
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside has %v (%v)", left, err)
	}
}

// TestImageEtc checks that the tree has the three synthetic files. The image's own are not written through, and its
// other files in /etc stay.
func TestImageEtc(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("untouched"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name  string
		files map[string]string
		etc   string // path of /etc
	}{
		{"plain", map[string]string{"etc/hosts": "image", "etc/passwd": "root:x:0:0::/root:/bin/sh"}, "etc"},
		{"links", map[string]string{"etc/hosts": "→" + victim, "etc/resolv.conf": "→../run/systemd/resolve/stub-resolv.conf",
			"etc/hostname": "→/proc/sys/kernel/hostname", "etc/passwd": "root:x:0:0::/root:/bin/sh"}, "etc"},
		{"etc is a link", map[string]string{"etc": "→/usr/etc", "usr/etc/passwd": "root:x:0:0::/root:/bin/sh"}, "usr/etc"},
		{"fifo", map[string]string{"etc/hosts": "|", "etc/passwd": "root:x:0:0::/root:/bin/sh"}, "etc"},
	} {
		t.Run(row.name, func(t *testing.T) {
			low := nstest.Layer(t, row.files)
			tree := image(t, Layout{Hostname: "box"}, Image{}, low)
			if got := nstest.Content(tree.Root, row.etc+"/hosts"); !strings.Contains(got, "localhost box") {
				t.Errorf("hosts is %q", got)
			}
			if got := nstest.Content(tree.Root, row.etc+"/resolv.conf"); !strings.HasPrefix(got, "# no name server") {
				t.Errorf("resolv.conf is %q", got)
			}
			if got := nstest.Content(tree.Root, row.etc+"/hostname"); got != "box\n" {
				t.Errorf("hostname is %q", got)
			}
			if tree.Account.Home != "/root" {
				t.Errorf("home of root is %q", tree.Account.Home)
			}
			if row.name != "plain" {
				return
			}
			if b, err := os.ReadFile(filepath.Join(low.Name(), "etc/hosts")); string(b) != "image" {
				t.Errorf("the layer's hosts is %q (%v)", b, err)
			}
		})
	}
	if b, _ := os.ReadFile(victim); string(b) != "untouched" {
		t.Errorf("a file outside became %q", b)
	}
	tree := image(t, Layout{}, Image{}, nstest.Layer(t, map[string]string{"etc/hosts/": ""}))
	if got := nstest.Content(tree.Root, "etc/hosts"); !strings.HasPrefix(got, "d") {
		t.Errorf("a directory /etc/hosts became %q", got)
	}
}

func TestImageOneID(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	const conf = "etc/apt/apt.conf.d/99demesne"
	debian := nstest.Layer(t, map[string]string{"etc/apt/apt.conf.d/": ""})
	for ids, want := range map[uint32]string{1: "APT::Sandbox::User \"root\";\n", 65536: "none"} {
		if got := nstest.Content(image(t, Layout{}, Image{UIDs: ids, GIDs: ids}, debian).Root, conf); got != want {
			t.Errorf("with %d ids: %q, want %q", ids, got, want)
		}
	}
	if got := nstest.Content(image(t, Layout{}, Image{UIDs: 1, GIDs: 1}, nstest.Layer(t, nil)).Root, "etc/apt"); got != "none" {
		t.Errorf("an image without apt got %q", got)
	}
}

func TestImageWorkingDir(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	victim := t.TempDir()
	low := nstest.Layer(t, map[string]string{"app/": "", "link": "→/app", "file": "", "out-link": "→../../../../tmp", "fifo": "|",
		"host": "→" + victim, "host-up": "→../../../../../../.." + victim, "loop": "→loop", "root": "→/proc/1/root" + victim})
	for name, made := range map[string]string{
		"/app": "app", "/app/x/y": "app/x/y", "/link/z": "app/z", "/new/../other": "other", "/file/x": "", "": "", "/": "",
		"/out-link/q": "tmp/q", strings.Repeat("/d", 100): "", strings.Repeat("/d", 4096): "", strings.Repeat("../", 4096) + "up": "up",
		"/host/q": "", "/host-up/q": "", "/host-up/../../q": "", "/root/q": "", "/loop/q": "", "/fifo/q": "", "/a\x00b": "", "/" + strings.Repeat("x", 1<<20): "",
	} {
		tree := image(t, Layout{}, Image{WorkingDir: name}, low)
		if got := nstest.Content(tree.Root, made); made != "" && !strings.HasPrefix(got, "d") {
			t.Errorf("%q: %s is %q", name, made, got)
		}
		if got := nstest.Content(tree.Root, "d"); got != "none" {
			t.Errorf("%.100q: d is %q", name, got)
		}
		if made, _ := os.ReadDir(victim); len(made) > 0 {
			t.Fatalf("%.100q: the host has %v", name, made)
		}
	}
}

func TestImageDir(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	low := nstest.Layer(t, map[string]string{"file": "content", "etc/passwd": "a:x:0:0::/a:"})
	tree := image(t, Layout{}, Image{Dir: Source{Path: low.Name(), Same: low}})
	if nstest.Content(tree.Root, "file") != "content" || os.WriteFile(filepath.Join(tree.Root, "file"), nil, 0) != nil {
		t.Error("its file cannot be read and changed")
	}
	if b, err := os.ReadFile(filepath.Join(low.Name(), "file")); string(b) != "content" {
		t.Errorf("the directory's file is %q (%v)", b, err)
	}
	for _, s := range []Source{{Path: filepath.Join(low.Name(), "file")}, {Path: low.Name() + "/none"}, {Path: low.Name(), Same: nstest.Layer(t, nil)}} {
		if _, err := tryImage(t, Layout{}, Image{Dir: s}); err == nil {
			t.Errorf("%v was mounted", s)
		}
	}
	empty := image(t, Layout{}, Image{})
	if list, err := os.ReadDir(empty.Root); err != nil || len(list) != 8 {
		t.Errorf("an image without layers has %v (%v)", list, err)
	}
}

// TestImageRoot checks that / has the mode of the highest layer, but is never closed to uid 0 and never setuid.
func TestImageRoot(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	for mode, want := range map[fs.FileMode]fs.FileMode{0o755: 0o755, 0o700: 0o755, 0: 0o555, 0o1777: 0o777} {
		low := nstest.Layer(t, nil)
		if err := os.Chmod(low.Name(), mode); err != nil {
			t.Fatal(err)
		}
		tree := image(t, Layout{}, Image{}, low)
		if st, err := os.Stat(tree.Root); err != nil || st.Mode().Perm() != want {
			t.Errorf("mode %o became %o (%v), want %o", mode, st.Mode().Perm(), err, want)
		}
		os.Chmod(low.Name(), 0o755)
		var sfs unix.Statfs_t
		if err := unix.Statfs(tree.Root, &sfs); err != nil || sfs.Flags&unix.ST_NOSUID == 0 || sfs.Flags&unix.ST_NODEV == 0 {
			t.Errorf("flags %#x (%v): not nosuid and nodev", sfs.Flags, err)
		}
	}
}

// TestImageSize checks that the sandbox's writes are limited, also in /dev/shm.
func TestImageSize(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	tree := image(t, Layout{Size: 1 << 20}, Image{}, nstest.Layer(t, map[string]string{"file": "x"}))
	if tree.Upper != UpperTmpfs {
		t.Skipf("upper is %q: %v", tree.Upper, tree.UpperWhy)
	}
	withDev(t, tree)
	big := make([]byte, 2<<20)
	for _, name := range []string{"file", "tmp/new", "dev/shm/new"} {
		if err := os.WriteFile(filepath.Join(tree.Root, name), big, 0o644); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("write 2 MiB to %s: %v", name, err)
		}
	}
}

// TestImageUndo checks that a mount that fails half-way leaves nothing.
func TestImageUndo(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	low := nstest.Layer(t, map[string]string{"etc/passwd": "root:x:0:0::/:"})
	mounts, fds := count(t, "/proc/self/mountinfo"), descriptors(t)
	for _, l := range []Layout{{Hostname: "a b"}, {Out: Source{Path: "/nowhere"}}, {Inputs: []Bind{{"x", Source{Path: "/usr"}}, {"x", Source{Path: "/usr"}}}}} {
		for _, old := range []bool{false, true} {
			l.Dir = t.TempDir()
			if _, err := MountImage(l, Image{Lowers: []*os.File{low}, UIDs: 1, GIDs: 1, lacks: lacks{detached: old}}); err == nil {
				t.Errorf("%+v was mounted", l)
			}
			if left, err := os.ReadDir(l.Dir); err != nil || len(left) > 0 {
				t.Errorf("left %v (%v)", left, err)
			}
		}
	}
	if _, err := MountImage(Layout{Dir: t.TempDir()}, Image{Lowers: []*os.File{low}, User: "nobody-here", UIDs: 1, GIDs: 1}); !errors.Is(err, ErrNoUser) {
		t.Errorf("unknown user: %v", err)
	}
	if m, f := count(t, "/proc/self/mountinfo"), descriptors(t); m != mounts || f != fds {
		t.Errorf("%d mounts and %d descriptors afterwards, %d and %d before", m, f, mounts, fds)
	}
}

func count(t *testing.T, path string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestImageNested puts the layers themselves on an overlay, as in a nested sandbox.
func TestImageNested(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	outer := image(t, Layout{}, Image{}, nstest.Layer(t, map[string]string{"store/l0/a": "zero", "store/l1/b": "one"}))
	var lowers []*os.File
	for _, name := range []string{"l0", "l1"} {
		f, err := os.Open(filepath.Join(outer.Root, "store", name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lowers = append(lowers, f)
	}
	for i := range 2 {
		scratch := fmt.Sprintf("%s/scratch%d", outer.Root, i)
		if err := os.Mkdir(scratch, 0o755); err != nil {
			t.Fatal(err)
		}
		tree := image(t, Layout{}, Image{lacks: lacks{tmpfs: i == 1}, Scratch: func() (string, error) { return scratch, nil }}, lowers...)
		if nstest.Content(tree.Root, "a") != "zero" || nstest.Content(tree.Root, "b") != "one" || os.Remove(filepath.Join(tree.Root, "a")) != nil {
			t.Errorf("upper %q: not usable", tree.Upper)
		}
	}
}

// TestImageTrust checks that CertFile has the image's certificates, or else the host's, plus the extra ones.
func TestImageTrust(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	const own, extra = "-----BEGIN CERTIFICATE-----\nown\n", "-----BEGIN CERTIFICATE-----\nextra\n"
	host := string(readBundle(bundle(hostFile)))
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte(own), 0o644); err != nil {
		t.Fatal(err)
	}
	const passwd = "root:x:0:0::/root:/bin/sh"
	for _, row := range []struct {
		name  string
		files map[string]string
		trust *Trust
		want  string // "" for no file
	}{
		{"nothing asked", map[string]string{}, nil, ""},
		{"its own do", map[string]string{"etc/ssl/certs/ca-certificates.crt": own}, &Trust{}, ""},
		{"and one more", map[string]string{"etc/ssl/certs/ca-certificates.crt": own}, &Trust{Extra: []byte(extra)}, own + "\n" + extra},
		{"and the host's", map[string]string{"etc/ssl/certs/ca-certificates.crt": own}, &Trust{Host: true}, own + "\n" + host + "\n"},
		{"and both", map[string]string{"etc/ssl/certs/ca-certificates.crt": own}, &Trust{Extra: []byte(extra), Host: true}, own + "\n" + host + "\n" + extra},
		{"Fedora's", map[string]string{"etc/pki/tls/certs/ca-bundle.crt": own}, &Trust{Extra: []byte(extra)}, own + "\n" + extra},
		{"after a comment", map[string]string{"etc/ssl/cert.pem": "# ours\n" + strings.Repeat("x", 5000) + "\n" + own}, &Trust{Extra: []byte(extra)}, "# ours\n" + strings.Repeat("x", 5000) + "\n" + own + "\n" + extra},
		{"in a comment", map[string]string{"etc/ssl/cert.pem": strings.Repeat("#", 4096) + own}, &Trust{Extra: []byte(extra)}, host + "\n" + extra},
		{"a link in the image", map[string]string{"etc/ssl/cert.pem": "→certs/all", "etc/ssl/certs/all": own}, &Trust{Extra: []byte(extra)}, own + "\n" + extra},
		{"a link out", map[string]string{"etc/ssl/cert.pem": "→" + victim}, &Trust{Extra: []byte(extra)}, host + "\n" + extra},
		{"a fifo", map[string]string{"etc/ssl/cert.pem": "|"}, &Trust{Extra: []byte(extra)}, host + "\n" + extra},
		{"not certificates", map[string]string{"etc/ssl/cert.pem": "hello"}, &Trust{Extra: []byte(extra)}, host + "\n" + extra},
		{"no platform", map[string]string{}, &Trust{}, host + "\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if host == "" && strings.HasPrefix(row.want, "\n") {
				row.want = strings.TrimLeft("\n"+string(row.trust.Extra), "\n") // the host has no certificates either
				if row.want != "" {
					row.want = "\n" + row.want
				}
			}
			row.files["etc/passwd"] = passwd
			tree := image(t, Layout{Trust: row.trust}, Image{}, nstest.Layer(t, row.files))
			got := nstest.Content(tree.Root, CertFile)
			if row.want == "" && (got != "none" || tree.CertFile != "") || row.want != "" && (got != row.want || tree.CertFile != CertFile) {
				t.Errorf("%q has %d bytes, want %d", tree.CertFile, len(got), len(row.want))
			}
			if got := nstest.Content(tree.Root, JavaFile); row.want == "" && got != "none" || row.want != "" && got != string(javaStore([]byte(row.want))) {
				t.Errorf("%q has %d bytes", JavaFile, len(got))
			}
		})
	}
}

// TestWithinBusy checks that a link with ".." is followed while other processes rename.
func TestWithinBusy(t *testing.T) {
	at := nstest.Layer(t, map[string]string{"a/b": "b", "c/d/link": "→../../a/../a/b", "c/e": "e"})
	other := t.TempDir()
	if err := os.WriteFile(other+"/0", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	over, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			default:
				os.Rename(fmt.Sprint(other, "/", i), fmt.Sprint(other, "/", i+1))
			}
		}
	}()
	for range 20_000 {
		fd, err := dir{fd: int(at.Fd())}.within("c/d/link", unix.O_PATH)
		if err != nil {
			t.Error(err)
			break
		}
		unix.Close(fd)
	}
	close(over)
	<-stopped
}
