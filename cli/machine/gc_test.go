package machine

import (
	"testing"

	"demesne/images"
)

func TestFreedText(t *testing.T) {
	got := freedText(&images.Freed{Names: []string{"docker.io/library/python:3.12"}, Bytes: 1 << 20}, 2<<20)
	if want := "removed python\nfreed 3.0 MiB\n"; got != want {
		t.Errorf("freedText: %q, want %q", got, want)
	}
}
