package cow

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"demesne/rootfs/upper"
)

// TestPatchHunks checks that all hunks of a text make the new text, none the old one, and one of two only its own place.
func TestPatchHunks(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	text := func() []byte {
		var b strings.Builder
		for range rnd.IntN(40) {
			fmt.Fprintf(&b, "%d\n", rnd.IntN(6))
		}
		return []byte(strings.TrimSuffix(b.String(), []string{"", "\n"}[rnd.IntN(2)]))
	}
	for range 2000 {
		p := Patch{Texts: upper.Texts{Old: text(), New: text()}}
		p.Hunks = hunksOf(p.Old, p.New)
		if got := p.With(p.Hunks); string(got) != string(p.New) {
			t.Fatalf("%q to %q: %q", p.Old, p.New, got)
		}
		if got := p.With(nil); string(got) != string(p.Old) {
			t.Fatalf("%q: %q", p.Old, got)
		}
	}
	same := ""
	for i := range 20 {
		same += fmt.Sprintf("line %d\n", i)
	}
	p := Patch{Texts: upper.Texts{Old: []byte("a\n" + same + "z"), New: []byte("A\n" + same + "Z")}}
	p.Hunks = hunksOf(p.Old, p.New)
	if len(p.Hunks) != 2 {
		t.Fatalf("hunks: %+v", p.Hunks)
	}
	for i, want := range []string{"A\n" + same + "z", "a\n" + same + "Z"} {
		if got := p.With(p.Hunks[i : i+1]); string(got) != want {
			t.Errorf("hunk %d: %q", i, got)
		}
	}
}
