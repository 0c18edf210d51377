package archive

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"demesne/images/oci"
)

// TestAddLayer checks that a layer is stored as it is, and that nothing is stored if its writer failed.
func TestAddLayer(t *testing.T) {
	s := openStore(t)
	const text = "not parsed"
	broken := errors.New("broken")
	blob := s.Dir() + "/blobs/sha256/" + oci.DigestOf([]byte(text)).Encoded()
	if _, err := AddLayer(context.Background(), s, strings.NewReader(text), func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("%v, want %v", err, broken)
	}
	if _, err := os.Stat(blob); err == nil {
		t.Error("a layer is stored whose writer failed")
	}
	l, err := AddLayer(context.Background(), s, strings.NewReader(text), func() error { return nil })
	if want := oci.DigestOf([]byte(text)); err != nil || l.Digest != want || l.DiffID != want || l.Size != int64(len(text)) {
		t.Errorf("%+v, %v", l, err)
	}
	if got, err := os.ReadFile(blob); err != nil || string(got) != text {
		t.Errorf("stored %q, %v", got, err)
	}
}
