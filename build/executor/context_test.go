package executor

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"demesne/build/containerfile"
	"demesne/images"
	"demesne/images/oci"
)

func imagesResult(l *oci.Layer) images.StepResult { return images.StepResult{Layer: l} }

// put writes files below a new directory; a name that ends in / is a directory.
func put(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		at := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(at, 0o755)
		} else if err == nil {
			err = os.WriteFile(at, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func opened(t testing.TB, dir string) *buildContext {
	t.Helper()
	c, err := openContext(&Options{Dir: dir, File: "Containerfile"}, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.root.Close() })
	return c
}

// copyAll returns the names that a source brings, and what stands in its files.
func copyAll(c *buildContext, source string) (string, error) {
	names, err := c.find(source, false)
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, name := range names {
		pr, pw := io.Pipe()
		done := make(chan error, 1)
		go func() {
			w := tar.NewWriter(pw)
			err := c.send(context.Background(), w, sha256.New(), name, &placing{})
			pw.CloseWithError(errors.Join(err, w.Close()))
			done <- err
		}()
		for r := tar.NewReader(pr); ; {
			h, err := r.Next()
			if err != nil {
				break
			}
			text, _ := io.ReadAll(r)
			fmt.Fprintf(&all, "%s=%s ", h.Name, text)
		}
		if err := <-done; err != nil {
			return all.String(), err
		}
	}
	return all.String(), nil
}

// TestContextPlaces checks that no name leads out of a context, or to a file that is excluded or no file.
func TestContextPlaces(t *testing.T) {
	dir := put(t, map[string]string{
		"a": "a", "d/b": "b", "private": "secret", "keys/k": "secret", "keys/open": "o", "keys2/k": "secret",
		".dockerignore": "private\nkeys/k\nkeys2\n",
	})
	for name, to := range map[string]string{
		"out": "/etc/passwd", "up": "../x", "loop": "loop", "chain": "d/../pub", "pub": "private", "kd": "keys", "kd2": "keys2", "d/deep": "../keys2/k",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(dir+"/fifo", 0o644); err != nil {
		t.Fatal(err)
	}
	c := opened(t, dir)
	for source, want := range map[string]string{
		"a": "a=a ", "/a": "a=a ", "//a": "a=a ", "./d/": ".= b=b deep= ", "d/*": "b=b source", "kd": ".= open=o ",
		"..": "outside of the context", "../a": "outside of the context", "d/../../a": "outside of the context", "/../a": "outside of the context",
		"*/../../a": "outside of the context", "out": `source "out": `, "up": `source "up": `, "loop": `source "loop": `,
		"/etc/passwd": "not in the context", "none": "not in the context", "[": "syntax error in pattern",
		"private": "excluded by the ignore file", "priv*": "",
		"pub": `leads to "private", which the ignore file excludes`, "chain": `leads to "private", which`, "kd2": `leads to "keys2", which`,
		"kd/k": `leads to "keys/k", which`, "kd2/k": `leads to "keys2/k", which`, "d/deep": `leads to "keys2/k", which`, "fifo": "a FIFO cannot be copied",
	} {
		got, err := copyAll(c, source)
		if err != nil {
			got += err.Error()
		}
		if !strings.Contains(got, strings.TrimSuffix(want, "source")) {
			t.Errorf("%s: %s, want %s", source, got, want)
		}
		if strings.Contains(got, "=secret") {
			t.Errorf("%s: it has a secret: %s", source, got)
		}
	}
}

// TestContextSwapped checks that a file that was replaced is not read: by a FIFO, which would block, or by a link.
func TestContextSwapped(t *testing.T) {
	dir := put(t, map[string]string{"a": "a", "private": "secret", "long": strings.Repeat("x", 1<<20)})
	c := opened(t, dir)
	info, err := c.root.Lstat("a")
	if err != nil {
		t.Fatal(err)
	}
	for what, make := range map[string]func() error{
		"link":   func() error { return os.Symlink("private", dir+"/a") },
		"FIFO":   func() error { return syscall.Mkfifo(dir+"/a", 0o644) },
		"file":   func() error { return os.WriteFile(dir+"/a", []byte("a"), 0o644) },
		"device": func() error { return os.Symlink("/dev/zero", dir+"/a") },
	} {
		if err := os.Rename(dir+"/a", dir+"/kept"); err != nil {
			t.Fatal(err)
		}
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if f, err := openSame(c.root, "a", info); err == nil {
			f.Close()
			t.Errorf("%s: opened", what)
		}
		os.Remove(dir + "/a")
		os.Rename(dir+"/kept", dir+"/a")
	}
	// A file that becomes shorter while it is read is an error, and not a shorter file.
	long, err := c.root.Lstat("long")
	if err != nil {
		t.Fatal(err)
	}
	os.Truncate(dir+"/long", 10)
	f := &found{member: member{Header: &tar.Header{Name: "long", Size: 1 << 20}}, in: c.root, base: "long", dir: -1, info: long}
	if err := f.copy(context.Background(), io.Discard, make([]byte, copyBuffer)); !errors.Is(err, errChanged) {
		t.Errorf("shorter: %v", err)
	}
}

// TestContextDigest checks that the digest of the sent files is the one in the key, and that a change of a file changes it.
func TestContextDigest(t *testing.T) {
	dir := put(t, map[string]string{"a": "a", "d/b": "b", "d/e/": ""})
	c := opened(t, dir)
	sums := func() (summed, sent string) {
		t.Helper()
		one, two := sha256.New(), sha256.New()
		if err := c.sum(t.Context(), one, ".", func(member) bool { return true }); err != nil {
			t.Fatal(err)
		}
		if err := c.send(t.Context(), tar.NewWriter(io.Discard), two, ".", &placing{}); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%x", one.Sum(nil)), fmt.Sprintf("%x", two.Sum(nil))
	}
	before := map[string]string{}
	for _, step := range []struct {
		what   string
		change func() error
	}{
		{"nothing", func() error { return nil }},
		{"content", func() error { return os.WriteFile(dir+"/a", []byte("b"), 0o644) }},
		{"mode", func() error { return os.Chmod(dir+"/a", 0o755) }},
		{"set-user-ID", func() error { return os.Chmod(dir+"/a", 0o755|fs.ModeSetuid) }},
		{"name", func() error { return os.Rename(dir+"/a", dir+"/a\n2") }},
		{"kind", func() error { return errors.Join(os.Remove(dir+"/d/b"), os.Mkdir(dir+"/d/b", 0o755)) }},
		{"link", func() error { return errors.Join(os.Remove(dir+"/d/b"), os.Symlink("e", dir+"/d/b")) }},
		{"its target", func() error { return errors.Join(os.Remove(dir+"/d/b"), os.Symlink("e\xff", dir+"/d/b")) }},
		{"its last byte", func() error { return errors.Join(os.Remove(dir+"/d/b"), os.Symlink("e\xfe", dir+"/d/b")) }},
	} {
		if err := step.change(); err != nil {
			t.Fatal(err)
		}
		summed, sent := sums()
		if summed != sent {
			t.Errorf("%s: sent %s, want %s", step.what, sent, summed)
		}
		if other := before[summed]; other != "" {
			t.Errorf("%s: the digest of %s", step.what, other)
		}
		before[summed] = step.what
	}
}

// TestContextLarge checks that a context of 100,000 files is read, and that 1 TiB can be interrupted.
func TestContextLarge(t *testing.T) {
	dir := put(t, map[string]string{".dockerignore": "excluded\n", "excluded/x": ""})
	for i := range 20 {
		sub := fmt.Sprintf("%s/many/%d", dir, i)
		if err := os.MkdirAll(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		for j := range 1000 {
			fd, err := syscall.Open(fmt.Sprintf("%s/%d", sub, j), syscall.O_CREAT|syscall.O_WRONLY, 0o644)
			if err != nil {
				t.Fatal(err)
			}
			syscall.Close(fd)
		}
	}
	for _, name := range []string{"huge", "excluded/huge"} {
		f, err := os.Create(dir + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Truncate(1<<40), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	c := opened(t, dir)
	n := 0
	if err := c.sum(t.Context(), sha256.New(), "many", func(member) bool { n++; return true }); err != nil || n != 20_021 {
		t.Errorf("%d files: %v", n, err)
	}
	for _, source := range []string{"huge", "many", "."} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		began := time.Now()
		err := c.sum(ctx, sha256.New(), source, func(member) bool { return true })
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > time.Minute {
			t.Errorf("%s: %v after %s", source, err, took)
		}
		cancel()
	}
}

// TestIgnoreFile checks that an ignore file that cannot be read as a whole stops the build.
func TestIgnoreFile(t *testing.T) {
	for want, make := range map[string]func(name string) error{
		"larger than 1048576 bytes": func(name string) error { return os.WriteFile(name, []byte(strings.Repeat("#\n", maxIgnore)), 0o644) },
		"not a regular file":        func(name string) error { return syscall.Mkfifo(name, 0o644) },
		"path escapes":              func(name string) error { return os.Symlink("/etc/passwd", name) },
		"syntax error":              func(name string) error { return os.WriteFile(name, []byte("[\n"), 0o644) },
		"illegal exclusion pattern": func(name string) error { return os.WriteFile(name, []byte("!\n"), 0o644) },
	} {
		dir := t.TempDir()
		if err := make(dir + "/.dockerignore"); err != nil {
			t.Fatal(err)
		}
		if _, err := openContext(&Options{Dir: dir, File: "Containerfile"}, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// FuzzIgnore checks that no pattern makes the ignore file or a source fail in another way than by an error, nor takes long.
func FuzzIgnore(f *testing.F) {
	for _, p := range []string{"*", "**", "!a", "**/b/**", "a*a*a*a*a*a*a*a*a*b", "[a-", "\\", "d/../a", strings.Repeat("**/", 100)} {
		f.Add(p, p)
	}
	dir := put(f, map[string]string{"a": "a", "d/b": "b", strings.Repeat("a", 200): ""})
	f.Fuzz(func(t *testing.T, pattern, source string) {
		if len(pattern) > 4096 || len(source) > 4096 {
			return
		}
		began := time.Now()
		if err := os.WriteFile(dir+"/.dockerignore", []byte(pattern), 0o644); err != nil {
			t.Fatal(err)
		}
		c, err := openContext(&Options{Dir: dir, File: "Containerfile"}, "")
		if err != nil {
			return
		}
		defer c.root.Close()
		if names, err := c.find(source, false); err == nil {
			for _, name := range names {
				if !fs.ValidPath(name) {
					t.Errorf("%q finds %q", source, name)
				}
				_ = c.sum(t.Context(), sha256.New(), name, func(member) bool { return true })
			}
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// FuzzExclude checks that no --exclude pattern takes long, and that a member is renamed below the destination.
func FuzzExclude(f *testing.F) {
	f.Add("*.o", "a/b.o")
	f.Add("**/x/**", "x")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 4096 || len(name) > 4096 {
			return
		}
		p, err := newPlacing(&containerfile.Copy{Exclude: []string{pattern}})
		if err == nil {
			p.rename(member{Header: &tar.Header{Name: name}, source: "."})
		}
	})
}

// TestContextState: no image gets demesne's own files, whose directory may not exist yet.
func TestContextState(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("DEMESNE_STATE", "")
	if err := os.MkdirAll(home+"/.demesne/out/run", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(home, home+"/link"); err != nil {
		t.Fatal(err)
	}
	for dir, refused := range map[string]bool{"": true, "/link": true, "/.demesne": true, "/.demesne/out/run": false} {
		c, err := openContext(&Options{Dir: home + dir, File: "Containerfile"}, "")
		if refused != (err != nil) || err != nil && !strings.Contains(err.Error(), "overlaps demesne's own files") {
			t.Errorf("%q: %v", dir, err)
		}
		if err == nil {
			c.root.Close()
		}
	}
}
