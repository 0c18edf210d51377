package stream

import (
	"bytes"
	"os"
	"testing"
	"time"
)

// TestAnswersEarly checks that a key that follows a question too soon is no answer, because it was typed for the command, and does not
// reach the command either.
func TestAnswersEarly(t *testing.T) {
	shown, err := os.Create(t.TempDir() + "/terminal")
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Close()
	var a Answers
	a.lines, a.echo, a.asked = make(chan string, 1), shown, time.Now().Add(time.Hour)
	if rest := a.divert([]byte("y\r")); rest != nil || len(a.lines) != 0 || a.typed != nil {
		t.Errorf("too soon: %q, %d answers, typed %q", rest, len(a.lines), a.typed)
	}
	lines := a.lines
	a.asked = time.Now().Add(-ignoreKeys)
	if rest := a.divert([]byte("n\rfree")); !bytes.Equal(rest, []byte("free")) || <-lines != "n" {
		t.Errorf("later: %q", rest)
	}
}

func TestIsYes(t *testing.T) {
	for in, want := range map[string]bool{"y\n": true, "Yes\n": true, " y ": true, "": false, "\n": false, "n\n": false, "yy": false} {
		if IsYes(in) != want {
			t.Errorf("%q: %t", in, !want)
		}
	}
}
