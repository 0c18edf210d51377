package images

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/flock"
)

func TestBlob(t *testing.T) {
	s := newStore(t)
	b := noise(1, 100_000)
	w, err := s.Begin(t.Context(), oci.DigestOf(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if w.Offset() != 0 {
		t.Errorf("a new blob starts at %d", w.Offset())
	}
	if _, err := io.Copy(w, bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Blob(oci.DigestOf(b)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("there before it is committed: %v", err)
	}
	if err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Close()
	f, err := s.Blob(oci.DigestOf(b))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, _ := f.Stat()
	if got, _ := io.ReadAll(f); !bytes.Equal(got, b) || st.Mode() != 0o644 {
		t.Errorf("%d bytes, %v", len(got), st.Mode())
	}
	if _, err := s.Begin(t.Context(), oci.DigestOf(b), int64(len(b))); !errors.Is(err, ErrPresent) {
		t.Errorf("the second time: %v", err)
	}
	if left := blobFiles(t, s, "partial"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestBlobResume checks that the bytes of an earlier attempt are reused and hashed again, and that
// the digest is still verified.
func TestBlobResume(t *testing.T) {
	b := noise(2, 50_000)
	d, n := oci.DigestOf(b), int64(len(b))
	for _, c := range []struct {
		name    string
		partial []byte
		offset  int64
		right   bool
	}{
		{"nothing", nil, 0, true},
		{"some", b[:20_000], 20_000, true},
		{"all", b, 50_000, true},
		{"too large", append(bytes.Clone(b), 1), 0, true},
		{"wrong", make([]byte, 20_000), 20_000, false},
	} {
		s := newStore(t)
		if err := os.WriteFile(s.partialPath(d.Encoded()), c.partial, 0o600); err != nil {
			t.Fatal(err)
		}
		w, err := s.Begin(t.Context(), d, n)
		if err != nil || w.Offset() != c.offset {
			t.Fatalf("%s: starts at %d, %v", c.name, w.Offset(), err)
		}
		if _, err := w.Write(b[w.Offset():]); err != nil {
			t.Fatal(err)
		}
		err = w.Commit(t.Context())
		if (err == nil) != c.right || !c.right && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", c.name, err)
		}
		if left := blobFiles(t, s, "partial"); len(left) != 0 {
			t.Errorf("%s: left behind: %v", c.name, left)
		}
	}
}

func TestBlobEnds(t *testing.T) {
	b := noise(3, 1000)
	d := oci.DigestOf(b)
	s := newStore(t)
	begin := func() *BlobWriter {
		t.Helper()
		w, err := s.Begin(t.Context(), d, 1000)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	w := begin()
	w.Write(b[:600])
	w.Close()
	w = begin()
	if w.Offset() != 600 {
		t.Errorf("after Close it starts at %d", w.Offset())
	}
	if err := w.Commit(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("too short: %v", err)
	}
	w = begin()
	if err := w.Restart(); err != nil || w.Offset() != 0 {
		t.Errorf("after Restart it starts at %d, %v", w.Offset(), err)
	}
	if _, err := w.Write(make([]byte, 1001)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("too long: %v", err)
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	for _, bad := range []struct {
		d oci.Digest
		n int64
	}{{"", 1}, {d, -1}, {d, 1 << 50}} {
		if _, err := s.Begin(t.Context(), bad.d, bad.n); err == nil || errors.Is(err, ErrPresent) {
			t.Errorf("Begin(%q, %d): %v", bad.d, bad.n, err)
		}
	}
}

// TestBlobWrongSize checks that a blob of the wrong size in the store is replaced.
func TestBlobWrongSize(t *testing.T) {
	s := newStore(t)
	b := noise(4, 1000)
	if err := os.WriteFile(s.blobPath(oci.DigestOf(b)), b[:999], 0o644); err != nil {
		t.Fatal(err)
	}
	w, err := s.Begin(t.Context(), oci.DigestOf(b), 1000)
	if err != nil {
		t.Fatal(err)
	}
	w.Write(b)
	if err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkStore(t, s)
}

// TestBlobTwice checks that only one of several concurrent writers writes a blob. The others wait
// and find it.
func TestBlobTwice(t *testing.T) {
	s := newStore(t)
	b := noise(5, 300_000)
	var wg sync.WaitGroup
	var mu sync.Mutex
	wrote := 0
	for range 8 {
		wg.Go(func() {
			own, err := Open(s.Dir()) // each process has its own Store
			if err != nil {
				t.Error(err)
				return
			}
			defer own.Close()
			w, err := own.Begin(t.Context(), oci.DigestOf(b), int64(len(b)))
			if errors.Is(err, ErrPresent) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			w.Write(b)
			if err := w.Commit(t.Context()); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			wrote++
		})
	}
	wg.Wait()
	if wrote != 1 {
		t.Errorf("written %d times", wrote)
	}
}

func TestBlobWaitCancelled(t *testing.T) {
	s := newStore(t)
	w, err := s.Begin(t.Context(), oci.DigestOf(nil), 5)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { _, err := s.Begin(ctx, oci.DigestOf(nil), 5); done <- err }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestPut(t *testing.T) {
	s := newStore(t)
	for range 2 {
		d, n, err := s.Put(t.Context(), strings.NewReader("hello"), 5)
		if err != nil || n != 5 || d != oci.DigestOf([]byte("hello")) {
			t.Errorf("got %s, %d, %v", d, n, err)
		}
	}
	if _, _, err := s.Put(t.Context(), strings.NewReader("hello"), 4); err == nil {
		t.Error("longer than the limit")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Put(ctx, strings.NewReader("else"), 5); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if left := blobFiles(t, s, "partial"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestDiskFull runs on a file system of its own, in its own namespaces.
func TestDiskFull(t *testing.T) {
	cmd := role(t, "full", "DEMESNE_TEST_DIR="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && os.Getenv("CI") != "true" {
		t.Skipf("no user namespaces: %v", err)
	}
	if err != nil || string(out) != "ok" {
		t.Errorf("%v: %s", err, out)
	}
}

// fillTheDisk fills a file system of 1 MiB in several ways. It prints "ok" if the store is
// unchanged each time.
func fillTheDisk() int {
	dir := os.Getenv("DEMESNE_TEST_DIR")
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=755"); err != nil {
		os.Stdout.WriteString("mount: " + err.Error())
		return 1
	}
	if err := fillStore(dir + "/images"); err != nil {
		os.Stdout.WriteString(err.Error())
		return 1
	}
	os.Stdout.WriteString("ok")
	return 0
}

func fillStore(dir string) error {
	ctx := context.Background()
	s, err := Open(dir)
	if err != nil {
		return err
	}
	m, err := makeImage(ctx, s, oci.Config{}, noise(1, 100<<10))
	if err != nil {
		return err
	}
	ref, err := imageref.Parse("a:1")
	if err != nil {
		return err
	}
	if _, err := s.Add(ctx, Record{Ref: ref, Manifest: m}); err != nil {
		return err
	}
	big := noise(2, 2<<20)
	if _, err := s.Begin(ctx, oci.DigestOf(big), int64(len(big))); !errors.Is(err, syscall.ENOSPC) {
		return errors.Join(errors.New("beginning a blob that is larger than the disk"), err)
	}
	half := noise(4, 500<<10) // fits if nothing else is written
	w, err := s.Begin(ctx, oci.DigestOf(half), int64(len(half)))
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path("fill"), noise(3, 700<<10), 0o600); err != nil {
		return err
	}
	if _, err := io.Copy(w, bytes.NewReader(half)); !errors.Is(err, syscall.ENOSPC) {
		return errors.Join(errors.New("writing a blob"), err)
	}
	w.Close()
	os.Remove(s.path("fill"))
	if _, _, err := s.Put(ctx, bytes.NewReader(big), 1<<30); !errors.Is(err, syscall.ENOSPC) {
		return errors.Join(errors.New("putting a blob"), err)
	}
	if list, err := os.ReadDir(s.path("partial")); len(list) != 0 {
		return errors.Join(errors.New("left behind"), err)
	}
	return fillIndex(ctx, s, m)
}

// fillIndex leaves no page for the index that Add writes.
func fillIndex(ctx context.Context, s *Store, m oci.Descriptor) error {
	os.WriteFile(s.path("fill"), noise(3, 2<<20), 0o600)
	before, err := os.ReadFile(s.path(indexFile))
	if err != nil {
		return err
	}
	ref, err := imageref.Parse("b:1")
	if err != nil {
		return err
	}
	if _, err := s.Add(ctx, Record{Ref: ref, Manifest: m}); !errors.Is(err, syscall.ENOSPC) {
		return errors.Join(errors.New("adding an image"), err)
	}
	after, err := os.ReadFile(s.path(indexFile))
	if err != nil || !bytes.Equal(before, after) {
		return errors.Join(errors.New("the index changed"), err)
	}
	list, err := os.ReadDir(s.dir)
	if err != nil || len(list) != 8 { // six made by create, index.json and fill
		return errors.Join(errors.New("left behind in the store"), err)
	}
	damage, err := s.Verify(ctx)
	if err != nil || len(damage) != 0 {
		return errors.Join(errors.New("damaged"), err)
	}
	return nil
}

// TestPublishTwice: two concurrent writers of one blob share a file. The blob that one of them pinned is kept when
// the other releases its pin.
func TestPublishTwice(t *testing.T) {
	a := newStore(t)
	b, err := Open(a.Dir())
	if err != nil {
		t.Fatal(err)
	}
	content := []byte("the same")
	d := oci.DigestOf(content)
	for _, s := range []*Store{a, b} {
		f, err := os.CreateTemp(s.path("partial"), tempPrefix+"*")
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Write(content)
		if err := errors.Join(err, flock.Lock(f, flock.Exclusive), s.publish(t.Context(), f, d)); err != nil {
			t.Fatal(err)
		}
	}
	b.Close()
	if _, err := b.GC(t.Context(), GCOptions{All: true}); err != nil {
		t.Fatal(err)
	}
	if left := blobFiles(t, a, "blobs/sha256"); len(left) != 1 {
		t.Errorf("a pinned blob was collected: %v", left)
	}
	if left := blobFiles(t, a, "partial"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
