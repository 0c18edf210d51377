package images

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"demesne/images/imageref"
	"demesne/images/oci"
)

// TestKill kills processes at random times while they add, move and collect the same images. After
// each round it checks the invariants of the store.
func TestKill(t *testing.T) {
	const rounds, writers = 60, 3
	s := newStore(t)
	seen := 0
	// On a slow machine the processes get less done, so there are more and longer rounds.
	for round := 0; round < rounds || seen < rounds/4 && round < 10*rounds; round++ {
		var all []*exec.Cmd
		for i := range writers + 1 {
			name := "add"
			if i == writers {
				name = "collect"
			}
			all = append(all, startRole(t, name, s))
		}
		time.Sleep(rand.N(time.Duration(1+round/rounds) * 50 * time.Millisecond)) // at any moment
		for _, cmd := range all {
			cmd.Process.Kill()
		}
		for _, cmd := range all {
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != -1 {
				t.Errorf("round %d: a process ended by itself: %v", round, err)
			}
		}
		checkStore(t, s)
		list, err := s.List()
		if seen += len(list); err != nil || t.Failed() {
			t.Fatalf("in round %d: %v", round, err)
		}
	}
	if t.Logf("%d images", seen); seen < rounds/4 {
		t.Errorf("%d images in %d rounds", seen, rounds)
	}
	if _, err := s.GC(t.Context(), GCOptions{All: true}); err != nil {
		t.Error(err)
	}
	if left := len(blobFiles(t, s, "blobs/sha256")) + len(blobFiles(t, s, "used")); left != 0 {
		t.Errorf("%d files are left", left)
	}
}

// startRole starts a process and waits until it has begun.
func startRole(t *testing.T, name string, s *Store) *exec.Cmd {
	t.Helper()
	cmd := role(t, name, "DEMESNE_TEST_DIR="+s.Dir())
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = out.Read(make([]byte, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	return cmd
}

// addForever adds images with random layers and names from a small set.
func addForever() int {
	return forever(func(ctx context.Context, s *Store) error {
		var layers [][]byte
		for range 1 + rand.IntN(3) {
			seed := rand.Uint64N(6)
			layers = append(layers, noise(seed, 20_000+int(seed)*10_000))
		}
		for _, l := range layers { // like a pull, which finds some layers of other images
			if err := addBlob(ctx, s, l); err != nil {
				return err
			}
		}
		m, err := makeImage(ctx, s, oci.Config{}, layers...)
		if err != nil {
			return err
		}
		ref, err := imageref.Parse(tagged(rand.IntN(4)))
		if err != nil {
			return err
		}
		img, err := s.Add(ctx, Record{Ref: ref, Manifest: m})
		if err != nil {
			return err
		}
		s.Close()
		held, err := s.Hold(ctx, img.Digest)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		defer held.Close()
		// A held image is not removed, but its entry may have lost its name.
		if _, err := s.load(entry{Descriptor: m}); err != nil {
			return err
		}
		return s.Whole(img)
	})
}

func addBlob(ctx context.Context, s *Store, b []byte) error {
	w, err := s.Begin(ctx, oci.DigestOf(b), int64(len(b)))
	if errors.Is(err, ErrPresent) {
		return nil
	}
	if err != nil {
		return err
	}
	defer w.Close()
	for rest := b[w.Offset():]; len(rest) > 0; {
		n, err := w.Write(rest[:min(len(rest), 7000)])
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	return w.Commit(ctx)
}

// collectForever removes names and collects garbage.
func collectForever() int {
	return forever(func(ctx context.Context, s *Store) error {
		ref, err := imageref.Parse(tagged(rand.IntN(4)))
		if err != nil {
			return err
		}
		_, err = s.Remove(ctx, ref, false)
		if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrInUse) {
			return err
		}
		_, err = s.GC(ctx, GCOptions{All: rand.IntN(4) == 0, Partials: time.Nanosecond})
		return err
	})
}

// forever repeats do until it fails. A failure is an error of the test.
func forever(do func(context.Context, *Store) error) int {
	s, err := Open(os.Getenv("DEMESNE_TEST_DIR"))
	os.Stdout.WriteString(".")
	for err == nil {
		err = do(context.Background(), s)
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}
