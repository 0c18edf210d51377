package app

import (
	"os"
	"os/signal"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/cli/stream"
)

// TestPrintClosedPipe checks that a reader that has enough is not an error.
func TestPrintClosedPipe(t *testing.T) {
	signal.Ignore(unix.SIGPIPE)
	defer signal.Reset(unix.SIGPIPE)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	if code, err := (&Console{Files: stream.Files{Stdout: w}}).Print("answer"); err != nil || code != 141 {
		t.Errorf("%d, %v", code, err)
	}
	w.Close()
	if _, err := (&Console{Files: stream.Files{Stdout: w}}).Print("answer"); err == nil {
		t.Error("a closed stdout is not an error")
	}
}
