package apibackend

import "testing"

// TestGiven checks that a sandbox with the name of a removed one does not have its secrets.
func TestGiven(t *testing.T) {
	var g given
	g.remember([]string{"a"}, "id1", "name")
	if got := g.of("name"); len(got) != 1 {
		t.Errorf("%v", got)
	}
	g.remember(nil, "id2", "name")
	if got := append(g.of("name"), g.of("id2")...); len(got) != 0 || len(g.of("id1")) != 1 {
		t.Errorf("%v", got)
	}
}
