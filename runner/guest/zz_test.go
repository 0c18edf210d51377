package guest_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"demesne/runner/wire"
)

func TestZZ(t *testing.T) {
	var a, b, c, d []time.Duration
	for range 60 {
		t0 := time.Now()
		s := start(t, inNamespaces())
		s.call("nope", nil, nil, nil)
		t1 := time.Now()
		s.setup(wire.GuestSetup{Landlock: wide(), Scoped: true, Seccomp: wire.SeccompOptions{NoSUID: true}})
		d = append(d, time.Since(t1))
		c = append(c, t1.Sub(t0))
		a = append(a, s.facts.Landlocked)
		b = append(b, s.facts.Filtered)
		s.peer.Close()
	}
	for i, x := range [][]time.Duration{a, b, c, d} {
		slices.Sort(x)
		fmt.Println([]string{"landlock", "seccomp", "boot", "setup"}[i], x[0], x[len(x)/2])
	}
}
