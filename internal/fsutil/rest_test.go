package fsutil

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// TestRest checks that a reader which is late returns all that its pipe holds, and does not wait for a writer that remains.
func TestRest(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	from := Rest(r)
	want := strings.Repeat("x", 40<<10)
	io.WriteString(w, "early")
	head := make([]byte, 5)
	if n, err := from.Read(head); string(head[:n]) != "early" || err != nil {
		t.Errorf("before the deadline: %q, %v", head[:n], err)
	}
	io.WriteString(w, want)
	r.SetReadDeadline(time.Unix(1, 0))
	var got bytes.Buffer
	for buf := make([]byte, 1000); ; {
		n, err := from.Read(buf)
		got.Write(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, "late") // a process of the background writes as fast as it is read
	}
	if got.String() != want {
		t.Errorf("%d bytes, want %d", got.Len(), len(want))
	}
	if n, err := from.Read(head); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the rest: %d, %v", n, err)
	}
}
