package tree

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"
)

// newRunID returns an id for the run of a child, in the form of the name of an output directory.
func newRunID() string {
	var b [4]byte
	rand.Read(b[:])
	return time.Now().UTC().Format("20060102-150405") + "-" + hex.EncodeToString(b[:])
}

func join(words []string) string { return strings.Join(words, ", ") }

func sinceSeconds(t time.Time) float64 { return float64(time.Since(t).Milliseconds()) / 1000 }
