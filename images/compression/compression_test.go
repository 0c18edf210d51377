package compression

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"demesne/images/oci"
)

// TestCompressionOne checks that one process does all the work that was asked for, also what is asked for meanwhile, that it
// forgets an image that fails, and that another process ends it.
func TestCompressionOne(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(dir+"/locks", 0o700)); err != nil {
		t.Fatal(err)
	}
	images := []oci.Digest{oci.DigestOf([]byte("a")), oci.DigestOf([]byte("b")), oci.DigestOf([]byte("c"))}
	ask := func(d oci.Digest) {
		if err := Ask(dir, "/bin/true", d); err != nil {
			t.Fatal(err)
		}
	}
	if err := Work(context.Background(), dir, nil); err != nil || End(dir) != nil {
		t.Errorf("nothing to do: %v", err)
	}
	ask(images[0])
	ask(images[1])
	os.WriteFile(filepath.Join(dir, asks, "not a digest"), nil, 0o644)
	var done []oci.Digest
	failed := errors.New("damaged")
	err := Work(context.Background(), dir, func(_ context.Context, d oci.Digest) error {
		if len(done) == 0 {
			ask(images[2])
		}
		if done = append(done, d); d == images[0] {
			return failed
		}
		return nil
	})
	slices.Sort(done)
	slices.Sort(images)
	if !errors.Is(err, failed) || !slices.Equal(done, images) || asked(dir) != "" {
		t.Errorf("%v: did %v of %v", err, done, images)
	}
}

// TestCompressionEnds has another process take the lock, which this one then neither takes nor leaves running.
func TestCompressionEnds(t *testing.T) {
	if dir := os.Getenv("COMPRESSION"); dir != "" {
		_ = Work(context.Background(), dir, func(context.Context, oci.Digest) error {
			os.Stdout.WriteString("x")
			select {}
		})
		return
	}
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/locks", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Ask(dir, "/bin/true", oci.DigestOf(nil)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestCompressionEnds$")
	cmd.Env = append(os.Environ(), "COMPRESSION="+dir)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := Work(context.Background(), dir, nil); err != nil {
		t.Errorf("beside another process: %v", err)
	}
	if err := End(dir); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if asked(dir) == "" {
		t.Error("work that was not done is forgotten")
	}
}
