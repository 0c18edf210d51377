package client

import (
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUploadPipe checks that a pipe is wide only while many bytes go through it.
func TestUploadPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	size := func() int {
		n, err := unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	resize(w, widePipe)
	usual, u, piece := size(), &upload{File: w}, make([]byte, 32<<10)
	for sent := 0; sent <= largePut; sent += len(piece) {
		if got := size(); got != usual {
			t.Fatalf("after %d bytes the pipe has %d bytes, not %d", sent, got, usual)
		}
		if _, err := u.Write(piece); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r, make([]byte, len(piece))); err != nil {
			t.Fatal(err)
		}
	}
	if got := size(); got < usual || got > largePipe {
		t.Errorf("during a large put the pipe has %d bytes", got)
	} else if got == usual && os.Getuid() == 0 {
		t.Error("the pipe did not become wider")
	}
	u.narrow()
	if got := size(); got != usual {
		t.Errorf("after the put the pipe has %d bytes, not %d", got, usual)
	}
}
