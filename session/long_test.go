package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"demesne/runner"
)

// written returns a stream that took these writes.
func written(t *testing.T, shown int, spill string, writes ...string) *stream {
	t.Helper()
	s := newStream(runner.OutputKept)
	s.shown, s.spill = shown, spill
	for _, w := range writes {
		s.take([]byte(w))
	}
	return s
}

// TestLong checks that the whole of a stream that is longer than what is shown is kept, with its head, and no other is.
func TestLong(t *testing.T) {
	root := t.TempDir()
	s := New(Options{OutputRoot: root})
	for _, c := range []struct {
		writes []string
		head   string
	}{
		{[]string{"12345", "67890"}, ""}, {[]string{"12345", "67890", "x"}, "12345"}, {[]string{"123", strings.Repeat("y", 100)}, "123yy"},
		{[]string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b"}, "12345"}, {[]string{"éééééééé"}, "éé"},
	} {
		st := written(t, 10, root, c.writes...)
		file := s.outputs.keepLong("sb", st)
		if got := st.last().Head; got != c.head || (file != "") != (c.head != "") {
			t.Errorf("%q: head %q, file %q", c.writes, got, file)
		}
		if b, err := os.ReadFile(file); file != "" && (err != nil || string(b) != strings.Join(c.writes, "")) {
			t.Errorf("%q: %q %v", c.writes, b, err)
		}
	}
	if st := written(t, 0, "", strings.Repeat("y", 100)); st.long() || s.outputs.keepLong("sb", st) != "" {
		t.Error("kept without a bound")
	}
}

// TestLongBounded checks that a sandbox has only the newest long outputs, and that nothing that was planted is followed.
func TestLongBounded(t *testing.T) {
	root := t.TempDir()
	s := New(Options{OutputRoot: root})
	var last string
	for range 3 * longKept {
		last = s.outputs.keepLong("sb", written(t, 2, root, "long"))
	}
	left, _ := filepath.Glob(filepath.Join(root, "sb", longDir, "*"))
	if len(left) != longKept || left[len(left)-1] != last {
		t.Errorf("%d files, the last %q, want %q", len(left), left[len(left)-1], last)
	}
	if err := os.Symlink("/etc", filepath.Join(root, "out")); err != nil {
		t.Fatal(err)
	}
	if got := s.outputs.keepLong("out", written(t, 2, root, "long")); got != "" {
		t.Errorf("kept in %q", got)
	}
}
