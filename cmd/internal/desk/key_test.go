package desk

import (
	"errors"
	"strings"
	"testing"

	"demesne/mcp/work"
	"demesne/runner"
)

func TestKeyName(t *testing.T) {
	base := work.Request{Key: "a/b c", Image: "host", Egress: "none"}
	first, key, err := keyName(base)
	if err != nil || !strings.HasPrefix(first, key) || len(first) > 63 {
		t.Fatalf("%q %q %v", first, key, err)
	}
	if again, _, _ := keyName(base); again != first {
		t.Errorf("asked again: %q, then %q", first, again)
	}
	for what, change := range map[string]func(*work.Request){
		"image":  func(r *work.Request) { r.Image = "python" },
		"egress": func(r *work.Request) { r.Egress = "package-managers" },
		"domain": func(r *work.Request) { r.Domains = []string{"x.example"} },
		"input":  func(r *work.Request) { r.Spec.Inputs = []runner.Input{{Path: "/a", Name: "a"}} },
		"limit":  func(r *work.Request) { r.Spec.Limits.PIDs = 5 },
	} {
		r := base
		change(&r)
		if name, k, _ := keyName(r); name == first || k != key {
			t.Errorf("another %s: %q %q", what, name, k)
		}
	}
	other := base
	other.Key = "a/b"
	if _, k, _ := keyName(other); k == key {
		t.Error("another key has the same name")
	}
	base.Spec.Name = "n"
	if _, _, err := keyName(base); !errors.Is(err, errBoth) {
		t.Errorf("%v", err)
	}
}
