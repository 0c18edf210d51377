package layers

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"demesne/rootfs/internal/nstest"
)

func TestBegin(t *testing.T) {
	c := newCache(t)
	if _, err := c.Begin(t.Context(), "sha256:../x"); err == nil {
		t.Error("a writer of no DiffID began")
	}
	put(t, c, id("a"))
	if _, err := c.Begin(t.Context(), id("a")); !errors.Is(err, ErrPresent) {
		t.Errorf("writing what is there: %v", err)
	}
	if got := entries(t, c); len(got) != 1 {
		t.Errorf("the cache has %q", got)
	}
}

// TestBeginWaits checks that a second writer waits for the first, and that the wait can be cancelled.
func TestBeginWaits(t *testing.T) {
	c := newCache(t)
	w, err := c.Begin(t.Context(), id("a"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan error)
	go func() {
		_, err := c.Begin(ctx, id("a"))
		given <- err
	}()
	cancel()
	if err := <-given; !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	waited := make(chan error)
	go func() {
		_, err := c.Begin(t.Context(), id("a"))
		waited <- err
	}()
	if err := publish(w); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; !errors.Is(err, ErrPresent) {
		t.Errorf("after the first: %v", err)
	}
}

// TestBeginAfterAbort checks that after an abort the waiting writer gets an empty directory.
func TestBeginAfterAbort(t *testing.T) {
	c := newCache(t)
	w, err := c.Begin(t.Context(), id("a"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, w.Dir+"/half", "")
	next := make(chan *Writer)
	go func() {
		w, err := c.Begin(t.Context(), id("a"))
		if err != nil {
			t.Error(err)
		}
		next <- w
	}()
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	w = <-next
	if list, err := os.ReadDir(w.Dir); err != nil || len(list) != 0 {
		t.Errorf("the next writer finds %v, %v", list, err)
	}
	if err := publish(w); err != nil {
		t.Fatal(err)
	}
}

// TestPublish checks that layers are published together, but independently: after an error only the unpublished
// ones are removed.
func TestPublish(t *testing.T) {
	c := newCache(t)
	var all []*Writer
	for _, name := range []string{"a", "b", "c"} {
		w, err := c.Begin(t.Context(), id(name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, w.Dir+"/file", name)
		all = append(all, w)
	}
	write(t, filepath.Join(c.Dir(), hexOf("b"), "taken"), "") // an existing name that the rename meets
	if err := Publish(all...); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("publishing under a name that is taken: %v", err)
	}
	if got := entries(t, c); len(got) != 2 || len(c.Missing([]DiffID{id("a")})) > 0 || len(c.Missing([]DiffID{id("c")})) == 0 {
		t.Errorf("the cache has %q", got)
	}
	if err := Publish(); err != nil {
		t.Errorf("publishing nothing: %v", err)
	}
}

// killedVar makes a test binary a writer to be killed; its value is the path of the store.
const killedVar = "DEMESNE_TEST_WRITER"

// TestWriterKilled checks that a writer killed at any moment leaves nothing that looks like a complete layer.
func TestWriterKilled(t *testing.T) {
	if store := os.Getenv(killedVar); store != "" {
		writeForEver(t, Open(store, "single-0-0"))
		return
	}
	c := newCache(t)
	for round := range 12 {
		cmd := nstest.Again(t)
		cmd.Env = append(cmd.Env, killedVar+"="+c.store)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		io.ReadFull(out, make([]byte, 64+5*round)) // the test's own output, and then a byte for each file
		cmd.Process.Kill()
		cmd.Wait()
		complete(t, c)
	}
	w, err := c.Begin(t.Context(), id("last"))
	if err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadDir(w.Dir); err != nil || len(list) != 0 {
		t.Errorf("after the kills a writer finds %v, %v", list, err)
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Sweep(nil); err != nil || len(entries(t, c)) != 0 {
		t.Errorf("a sweep left %q, %v", entries(t, c), err)
	}
}

// writeForEver writes, sweeps and aborts until it is killed.
func writeForEver(t *testing.T, c Cache) {
	for {
		for _, name := range []string{"a", "b", "last"} {
			w, err := c.Begin(t.Context(), id(name))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range []string{"1", "d/2", "d/e/3"} {
				write(t, filepath.Join(w.Dir, f), name)
				os.Stdout.WriteString(".")
			}
			if name == "last" {
				err = w.Abort()
			} else {
				err = publish(w)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Sweep(nil); err != nil {
			t.Fatal(err)
		}
	}
}

// complete checks that each published layer has all of its files.
func complete(t *testing.T, c Cache) {
	t.Helper()
	for _, name := range entries(t, c) {
		if strings.HasPrefix(name, ".") {
			continue
		}
		for _, f := range []string{"1", "d/2", "d/e/3"} {
			if _, err := os.Stat(filepath.Join(c.Dir(), name, "fs", f)); err != nil {
				t.Errorf("a layer is not complete: %v", err)
			}
		}
	}
}

// TestAllAtOnce runs writers, holders and sweeps concurrently. Each layer has one writer at a time, and the files
// of a held layer exist.
func TestAllAtOnce(t *testing.T) {
	c := newCache(t)
	ids := []DiffID{id("a"), id("b")}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				for _, id := range ids {
					w, err := c.Begin(t.Context(), id)
					if errors.Is(err, ErrPresent) {
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					write(t, w.Dir+"/file", string(id))
					if err := publish(w); err != nil {
						t.Error(err)
					}
				}
				h, err := c.Hold(ids)
				if missing := (*MissingError)(nil); errors.As(err, &missing) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				for i, f := range h.FS {
					if got, err := os.ReadFile(pathOf(f) + "/file"); err != nil || string(got) != string(ids[i]) {
						t.Errorf("held %q: %q, %v", ids[i], got, err)
					}
				}
				h.Close()
			}
		})
	}
	for range 2 {
		all.Go(func() {
			for range 100 {
				if _, err := c.Sweep(nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}
