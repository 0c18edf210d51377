package sandbox

import (
	"slices"
	"testing"

	"demesne/rootfs/layers"
	"demesne/runner"
)

func TestEqualLayers(t *testing.T) {
	got := diffIDs(&runner.Rootfs{Layers: []string{"a", "b", "a", "c", "b"}})
	if want := []layers.DiffID{"a", "c", "b"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
