package servecmd

import (
	"slices"
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
