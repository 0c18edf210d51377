package imageref

import (
	"strings"
	"testing"
)

func TestShortName(t *testing.T) {
	for full, want := range map[string]string{
		"docker.io/library/python:3.12":                              "python",
		"docker.io/library/python:latest":                            "python:latest", // the bare word is the other one
		"docker.io/library/debian:latest":                            "debian",
		"docker.io/library/mine:latest":                              "mine",
		"docker.io/library/redis:7":                                  "redis:7",
		"docker.io/me/app:latest":                                    "me/app",
		"ghcr.io/o/n:1":                                              "ghcr.io/o/n:1",
		"localhost:5000/x:latest":                                    "localhost:5000/x",
		"oci:/abs/dir:tag":                                           "oci:/abs/dir:tag",
		"docker.io/library/x@" + "sha256:" + strings.Repeat("a", 64): "x@" + "sha256:" + strings.Repeat("a", 64),
	} {
		if got := Short(full); got != want {
			t.Errorf("Short(%q) = %q, want %q", full, got, want)
		}
		if ref, err := Parse(Short(full)); err != nil || ref.Full != full {
			t.Errorf("Short(%q) = %q, which is %q, %v", full, Short(full), ref.Full, err)
		}
	}
}
