package sandbox

import (
	"testing"

	"demesne/runner"
)

func TestWithLayers(t *testing.T) {
	before := []runner.Layer{{Name: "seccomp", Detail: "a"}, {Name: "gateway", Detail: "b"}}
	after := withLayers(before, []runner.Layer{{Name: "gateway", Detail: "c"}, {Name: "other", Detail: "d"}})
	if len(after) != 2 || after[0].Detail != "a" || after[1].Detail != "c" || before[1].Detail != "b" {
		t.Errorf("%v became %v", before, after)
	}
}
