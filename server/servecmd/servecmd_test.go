package servecmd

import (
	"slices"
	"strings"
	"testing"

	"demesne/internal/cmdline"
	"demesne/session"
)

// TestCeilings checks that a ceiling is a value that the limit itself can have.
func TestCeilings(t *testing.T) {
	var b session.Bounds
	flags := BoundFlags(&b)
	for _, c := range []struct {
		flag, value string
		ok          bool
	}{
		{"max-memory", "512m", true}, {"max-memory", "1", false}, {"max-memory", "none", false},
		{"max-disk", "1g", true}, {"max-disk", "0", false}, {"max-pids", "512", true}, {"max-pids", "1", false}, {"max-pids", "none", false},
	} {
		at := slices.IndexFunc(flags, func(f cmdline.Flag) bool { return f.Long == c.flag })
		if err := flags[at].Set(c.value); (err == nil) != c.ok {
			t.Errorf("%s %s: %v", c.flag, c.value, err)
		}
	}
	if b.Max.Memory != 512<<20 || b.Max.Disk != 1<<30 || b.Max.PIDs != 512 {
		t.Errorf("%+v", b.Max)
	}
}

// TestIDSuffix checks that an id with its suffix, after a port, is a label of a host name.
func TestIDSuffix(t *testing.T) {
	var to string
	for value, ok := range map[string]bool{"demesne-0": true, "a": true, strings.Repeat("a", 36): true, strings.Repeat("a", 37): false, "": false, "A": false, "a.b": false, "a-": false} {
		if err := label(&to)(value); (err == nil) != ok {
			t.Errorf("%q: %v", value, err)
		}
	}
}
