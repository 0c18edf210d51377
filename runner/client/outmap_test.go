package client

import (
	"os"
	"testing"
)

// TestOutMap checks which namespaces a client accepts from its runner as the one that a client of real root made
// (F23). The runner's own has the same parent but another owner. Those that it makes have another parent.
func TestOutMap(t *testing.T) {
	if !realRoot() {
		return // only real root maps files so
	}
	buildPrograms(t)
	progs, err := findPrograms("")
	if err != nil {
		t.Fatal(err)
	}
	program := progs.runner
	self, err := openAt("/proc/self/ns/user")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	o := &outMap{program: program}
	made, hand, err := o.get()
	if err != nil {
		t.Fatal(err)
	}
	if hand == nil {
		t.Fatal("the runner does not get the namespace")
	}
	if err := checkOutMap(hand, self); err != nil {
		t.Errorf("the namespace that a client made: %v", err)
	}
	if again, more, err := o.get(); again != made || more != nil || err != nil {
		t.Errorf("second use: %v, %v, %v; want the same, which the runner has", again, more, err)
	}

	runners, err := holdUserns(program, planMaps(true, false))
	if err != nil {
		t.Fatal(err)
	}
	defer runners.ns.Close()
	foreign, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	for name, ns := range map[string]*os.File{"the runner's": runners.ns, "no namespace": foreign, "the client's": self} {
		if checkOutMap(ns, self) == nil {
			t.Errorf("accepted: %s", name)
		}
	}

	if checkOutMap(made, runners.ns) == nil {
		t.Error("accepted: one with another parent")
	}

	next := &outMap{program: "/nonexistent"}
	next.accept(hand, self)
	if ns, more, err := next.get(); ns != hand || more != nil || err != nil {
		t.Errorf("the next client: %v, %v, %v; want what the runner handed over", ns, more, err)
	}
}
