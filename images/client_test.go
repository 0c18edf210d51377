package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/images/events"
	"demesne/images/oci"
)

// newClient returns a client of a new store. Its registry has the image "o/n:1" with three layers.
func newClient(t *testing.T, wrong string) (c *Client, registry *Store) {
	t.Helper()
	registry = newStore(t)
	addImage(t, registry, "o/n:1", noise(1, 200_000), noise(2, 50_000), noise(1, 200_000), noise(3, 100))
	t.Setenv(roleVar, "images")
	t.Setenv("DEMESNE_FAKE", wrong)
	t.Setenv("DEMESNE_FAKE_SOURCE", registry.Dir())
	t.Setenv("SECRET", "do not pass on")
	enter := func(_ context.Context, cmd *exec.Cmd) error {
		if strings.Contains(fmt.Sprint(cmd.Env), "SECRET") {
			t.Error("what is entered gets the caller's environment")
		}
		return cmd.Start()
	}
	return &Client{Store: newStore(t), Program: testProgram(t), Enter: enter}, registry
}

func TestPull(t *testing.T) {
	c, _ := newClient(t, "")
	ref := mustParse(t, "o/n:1")
	for i, want := range []events.State{events.Done, events.Present} {
		seen := map[events.State]int{}
		img, err := c.Pull(t.Context(), ref, func(e events.Event) {
			if seen[e.State]++; e.Digest == "" {
				t.Errorf("an event about no blob: %+v", e)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(img.Layers) != 4 || seen[want] < 3 || seen[events.Pulled] != 4*(1-i) {
			t.Errorf("%d: %d layers, %v", i, len(img.Layers), seen)
		}
	}
	checkStore(t, c.Store)
	if trees := blobFiles(t, c.Store, "trees"); len(trees) != 3 {
		t.Errorf("unpacked: %v", trees)
	}
	if list, _ := c.Store.List(); list[0].InUse {
		t.Error("it is still held")
	}
}

// TestPullUnpacked checks that Enter is not called for layers that are already unpacked.
// TestLate reads the result of a program that ended long before: the caller shows progress on a slow terminal.
func TestLate(t *testing.T) {
	c, registry := newClient(t, "")
	addImage(t, registry, "a:1", []byte("x"))
	name, err := c.remote(mustParse(t, "a:1"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	last, err := c.run(t.Context(), job{args: c.pullArgs(name), on: func(events.Event) {
		n++
		for unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil) != unix.ECHILD {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(10 * time.Millisecond) // its end is known by then, mostly
	}})
	if err != nil || last.Event != events.Result || n == 0 {
		t.Errorf("%d events, %+v, %v", n, last, err)
	}
}

func TestPullUnpacked(t *testing.T) {
	c, _ := newClient(t, "")
	ref := mustParse(t, "o/n:1")
	if _, err := c.Pull(t.Context(), ref, nil); err != nil {
		t.Fatal(err)
	}
	asked := map[oci.Digest]bool{}
	c.Unpacked = func(id oci.Digest) bool { asked[id] = true; return true }
	c.Enter = func(context.Context, *exec.Cmd) error { return errors.New("entered") }
	img, err := c.Pull(t.Context(), ref, nil)
	if err != nil || len(img.Layers) != 4 || len(asked) != 3 {
		t.Errorf("asked for %v, %v", asked, err)
	}
	c.Unpacked = func(oci.Digest) bool { return false }
	if _, err := c.Pull(t.Context(), ref, nil); err == nil {
		t.Error("layers that are not unpacked were left so")
	}
}

// TestPullPlatform checks that a platform is passed on to the program.
func TestPullPlatform(t *testing.T) {
	c := &Client{Store: newStore(t)}
	if got := c.pullArgs("n"); !slices.Equal(got, []string{"pull", "--store", c.Store.Dir(), "n"}) {
		t.Errorf("%q", got)
	}
	c.Platform = "linux/arm64"
	if got := c.pullArgs("n"); !slices.Equal(got, []string{"pull", "--store", c.Store.Dir(), "--platform", "linux/arm64", "n"}) {
		t.Errorf("%q", got)
	}
}

func TestEnsure(t *testing.T) {
	for _, c := range []struct {
		name    string
		policy  PullPolicy
		there   bool
		damaged bool
		pulls   bool
		err     error
	}{
		{"o/n:1", PullMissing, false, false, true, nil},
		{"o/n:1", "", true, false, false, nil},
		{"o/n:1", PullAlways, true, false, true, nil},
		{"o/n:1", PullNever, true, false, false, nil},
		{"o/n:1", PullNever, false, false, false, ErrNotFound},
		{"o/n:1", PullMissing, true, true, true, nil},
		{"o/n:1", PullNever, true, true, false, nil},
		{"nope", PullAlways, false, false, false, ErrNotFound},
		{"nope", PullMissing, true, false, false, ErrNotFound},
		{someHex, PullAlways, true, false, false, ErrNotFound},
	} {
		cl, _ := newClient(t, "")
		ref := mustParse(t, c.name)
		if c.there {
			img, err := cl.Pull(t.Context(), mustParse(t, "o/n:1"), nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.damaged {
				os.Remove(cl.Store.blobPath(img.Layers[1].Digest))
			}
		}
		pulled := false
		img, err := cl.Ensure(t.Context(), ref, c.policy, func(events.Event) { pulled = true })
		if !errors.Is(err, c.err) || (err == nil) != (img != nil) || pulled != c.pulls {
			t.Errorf("%+v: pulled %v, %v", c, pulled, err)
		}
		if c.pulls {
			checkStore(t, cl.Store)
		}
	}
}

// TestEnsureStartsNothing checks that Ensure starts no program for an image in the store.
func TestEnsureStartsNothing(t *testing.T) {
	s := newStore(t)
	addImage(t, s, "mine", []byte("x"))
	c := &Client{Store: s, Program: "/nonexistent"}
	if _, err := c.Ensure(t.Context(), mustParse(t, "mine"), "", nil); err != nil {
		t.Error(err)
	}
	if _, err := c.Pull(t.Context(), mustParse(t, "mine"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing program: %v", err)
	}
}

// TestEnsureFile checks that an archive is read again when it has changed.
func TestEnsureFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.tar")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ref := mustParse(t, "oci-archive:"+path)
	img := &Image{Pulled: time.Now().Add(time.Hour)}
	if !fresh(ref, img) {
		t.Error("one from before the pull is not fresh")
	}
	img.Pulled = time.Now().Add(-time.Hour)
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	if fresh(ref, img) {
		t.Error("one from after the pull is fresh")
	}
	if fresh(mustParse(t, "oci:"+path), img) || fresh(mustParse(t, "oci-archive:/nonexistent"), img) {
		t.Error("a missing image is fresh")
	}
	if !fresh(mustParse(t, "o/n:1"), img) {
		t.Error("a registry's image depends on a file")
	}
}

func TestPullWrong(t *testing.T) {
	for _, c := range []struct {
		wrong, why string
		code       events.Code
	}{
		{"dies", "exit status 3: noise", ""},
		{"garbage", "read event: invalid character", ""},
		{"endless", "read event: bufio.Scanner: token too long", ""},
		{"silent", "without a result", ""},
		{"lazy", "without a result", ""},
		{"reader", "without a result", ""},
		{"hostile", "hostile", events.CodeRefused},
		{"daemon", "login", events.CodeDenied},
	} {
		t.Run(c.wrong, func(t *testing.T) {
			cl, _ := newClient(t, c.wrong)
			_, err := cl.Pull(t.Context(), mustParse(t, "o/n:1"), func(e events.Event) {
				if pid, _ := strconv.Atoi(e.Why); pid > 1 {
					t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
				}
			})
			if err == nil {
				t.Fatal("it went well")
			}
			contains(t, err.Error(), `image "o/n:1": `, c.why)
			var f *events.Failure
			if errors.As(err, &f) != (c.code != "") || f != nil && f.Code != c.code {
				t.Errorf("%v is %+v", err, f)
			}
			if len(err.Error()) > 3000 || strings.Contains(err.Error(), "\n") {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			checkStore(t, cl.Store)
		})
	}
}

func TestPullNotFound(t *testing.T) {
	c, _ := newClient(t, "")
	_, err := c.Pull(t.Context(), mustParse(t, "o/n:2"), nil)
	var f *events.Failure
	if !errors.As(err, &f) || f.Code != events.CodeUnreachable || f.Hint != "try again" {
		t.Errorf("got %v", err)
	}
	for _, name := range []string{"host", "dir:/", someHex, "word"} {
		if _, err := c.Pull(t.Context(), mustParse(t, name), nil); err == nil {
			t.Errorf("%s is pulled", name)
		}
	}
}

// TestPullCancelled cancels a pull at different times. The pull must end, the store must be intact,
// and the next pull must succeed.
func TestPullCancelled(t *testing.T) {
	c, _ := newClient(t, "")
	ref := mustParse(t, "o/n:1")
	for i := range 12 {
		ctx, cancel := context.WithCancel(t.Context())
		told := 0
		_, err := c.Pull(ctx, ref, func(events.Event) {
			if told++; told > i {
				cancel()
			}
		})
		cancel()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("after %d events: %v", i, err)
		}
		checkStore(t, c.Store)
	}
	if _, err := c.Pull(t.Context(), ref, nil); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Pull(ctx, ref, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
}

// TestPullKilled kills one of the programs at different times. The store must be intact, and the next
// pull must not download a blob again.
func TestPullKilled(t *testing.T) {
	c, _ := newClient(t, "mortal")
	ref, killed := mustParse(t, "o/n:1"), 0
	for range 50 {
		_, err := c.Pull(t.Context(), ref, nil)
		var exit *exec.ExitError
		switch {
		case errors.As(err, &exit) && exit.ExitCode() == -1:
			killed++
		case err != nil:
			t.Error(err)
		}
		checkStore(t, c.Store)
	}
	if killed < 5 {
		t.Errorf("%d of 50 were killed", killed)
	}
	t.Setenv("DEMESNE_FAKE", "")
	if _, err := c.Pull(t.Context(), ref, nil); err != nil {
		t.Error(err)
	}
	if left := blobFiles(t, c.Store, "partial"); slices.ContainsFunc(left, func(name string) bool { return !strings.HasPrefix(name, tempPrefix) }) {
		t.Errorf("left behind: %v", left)
	}
}

// TestEnsureBadIndex checks that no pull is started when the index is damaged.
func TestEnsureBadIndex(t *testing.T) {
	s := newStore(t)
	if err := os.WriteFile(s.path(indexFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, ref := &Client{Store: s, Program: "/nonexistent"}, mustParse(t, "o/n:1")
	for _, policy := range []PullPolicy{PullMissing, PullAlways, PullNever} {
		if _, err := c.Ensure(t.Context(), ref, policy, nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", policy, err)
		}
	}
	if _, err := c.Pull(t.Context(), ref, nil); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v", err)
	}
}

// TestPullDeaf checks that a program that ignores stdin and signals is killed.
func TestPullDeaf(t *testing.T) {
	c, _ := newClient(t, "deaf")
	c.grace = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.Pull(ctx, mustParse(t, "o/n:1"), func(events.Event) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestPullAtOnce pulls one image with many clients into one store, and kills some of their programs.
func TestPullAtOnce(t *testing.T) {
	c, registry := newClient(t, "")
	for i := range 4 {
		addImage(t, registry, tagged(i), noise(1, 200_000), noise(uint64(i+10), 30_000))
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			store, err := Open(c.Store.Dir())
			if err != nil {
				t.Error(err)
				return
			}
			own := &Client{Store: store, Program: c.Program, Enter: c.Enter}
			if i%2 == 1 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*7*time.Millisecond)
				defer cancel()
				own.Pull(ctx, mustParse(t, tagged(i%4)), nil)
			}
			if _, err := own.Pull(t.Context(), mustParse(t, tagged(i%4)), nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	checkStore(t, c.Store)
	if list, _ := c.Store.List(); len(list) != 4 {
		t.Errorf("%d images", len(list))
	}
	// A writer that is killed before it finds the blob present leaves an empty partial file for GC.
	for _, name := range blobFiles(t, c.Store, "partial") {
		if st, err := os.Stat(c.Store.partialPath(name)); err != nil || st.Size() > 0 {
			t.Errorf("left behind: %s, %v", name, err)
		}
	}
}

func TestSweep(t *testing.T) {
	c, _ := newClient(t, "")
	addImage(t, c.Store, "a:1", []byte("1"), []byte("2"))
	addImage(t, c.Store, "b:1", []byte("2"), []byte("3"))
	for _, keep := range [][]oci.Digest{nil, {"sha256:" + someHex}} { // the layer of a removed image that a sandbox still uses
		if freed, _, err := c.Sweep(t.Context(), keep); freed != int64(3+len(keep)) || err != nil { // the fake counts the layers to keep
			t.Errorf("keeping %q: got %d, %v", keep, freed, err)
		}
	}
	t.Setenv("DEMESNE_FAKE", "silent")
	if _, _, err := c.Sweep(t.Context(), nil); !errors.Is(err, errNoResult) {
		t.Errorf("got %v", err)
	}
}

func TestImport(t *testing.T) {
	c, registry := newClient(t, "")
	addImage(t, registry, "mine:latest", []byte("x"))
	img, err := c.Import(t.Context(), "some.tar", mustParse(t, "mine"), nil)
	if err != nil || !slices.Contains(img.Names, "docker.io/library/mine:latest") {
		t.Errorf("got %+v, %v", img, err)
	}
	if _, err := c.Ensure(t.Context(), mustParse(t, "mine"), "", nil); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"host", "dir:/x", "oci:/x", someHex, "a@sha256:" + someHex} {
		if _, err := c.Import(t.Context(), "x", mustParse(t, name), nil); err == nil {
			t.Errorf("imported as %s", name)
		}
	}
}

func TestSaveExport(t *testing.T) {
	c, _ := newClient(t, "")
	addImage(t, c.Store, "a:1", []byte("x"))
	ref, dir := mustParse(t, "a:1"), t.TempDir()
	var args string
	progress := func(e events.Event) { args = e.Why }
	for want, do := range map[string]func(*os.File) error{
		"--format docker docker.io/library/a:1": func(f *os.File) error { return c.Save(t.Context(), ref, f, "docker", progress) },
		"docker.io/library/a:1":                 func(f *os.File) error { return c.Export(t.Context(), ref, f, progress) },
	} {
		path := filepath.Join(dir, "out")
		if err := ToFile(path, do); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, noise(1, 1<<20)) || args != want {
			t.Errorf("%d bytes, %v, arguments %q", len(got), err, args)
		}
	}
	if err := c.Export(t.Context(), mustParse(t, "b:1"), nil, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if err := c.Export(t.Context(), ref, full, nil); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("to a full disk: %v", err)
	}
}

func TestToFile(t *testing.T) {
	dir := t.TempDir()
	path, wrong := filepath.Join(dir, "f"), errors.New("wrong")
	text := func(s string, err error) func(*os.File) error {
		return func(f *os.File) error { f.WriteString(s); return err }
	}
	if err := errors.Join(ToFile(path, text("one", nil)), ToFile("/dev/null", text("x", nil))); err != nil {
		t.Fatal(err)
	}
	if err := ToFile(path, text("two", wrong)); !errors.Is(err, wrong) {
		t.Errorf("got %v", err)
	}
	if err := ToFile(filepath.Join(dir, "none", "f"), text("", nil)); err == nil {
		t.Error("a file without a directory")
	}
	got, _ := os.ReadFile(path)
	if list, _ := os.ReadDir(dir); string(got) != "one" || len(list) != 1 {
		t.Errorf("got %q, and %v", got, list)
	}
}
