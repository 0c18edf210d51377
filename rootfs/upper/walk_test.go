package upper

import "testing"

// TestKeeps checks that a walk of a deep tree holds few descriptors, and opens few levels again on the way up: far fewer
// than the square of the depth.
func TestKeeps(t *testing.T) {
	const depth = 100_000
	open := map[int]bool{0: true}
	close := func(at int) {
		for level := range open {
			if !keeps(level, at) {
				delete(open, level)
			}
		}
		if len(open) > maxOpen+1 {
			t.Fatalf("%d levels are open at depth %d", len(open), at)
		}
	}
	for at := 1; at <= depth; at++ {
		open[at] = true
		close(at)
	}
	steps := 0
	for at := depth - 1; at > 0; at-- {
		delete(open, at+1)
		from := at
		for !open[from] {
			from--
		}
		for ; from < at; from++ {
			steps++
			open[from+1] = true
		}
		close(at)
	}
	if steps > 10*depth {
		t.Errorf("%d levels were opened again on the way up", steps)
	}
}
