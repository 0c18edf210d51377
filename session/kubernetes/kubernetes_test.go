package kubernetes

import "testing"

func TestNamespace(t *testing.T) {
	for _, name := range []string{"", "work", "a-1"} {
		if _, err := New(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"a b", "../x", "A", "-a", "a/", "\n"} {
		if _, err := New(name); err == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}
