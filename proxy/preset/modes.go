package preset

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"demesne/proxy/policy"
)

// ErrMode is what an unknown mode wraps.
var ErrMode = errors.New("unknown egress mode")

// Mode is a word for what a sandbox may reach before any rule is added. The zero Mode
// is None.
type Mode struct{ row *row }

// row is one mode. Adding one here is all it takes.
type row struct {
	name, about string
	rules       func() []policy.Rule
	everything  bool
}

var table = []row{
	{name: "none", about: "nothing but what rules allow"},
	{name: "package-managers", about: "the servers of package managers, and the mirrors this host uses", rules: managers},
	{name: "open", about: "every public address", rules: func() []policy.Rule { return []policy.Rule{policy.Everything()} }, everything: true},
}

// Parse gives the mode with that name.
func Parse(name string) (Mode, error) {
	for i := range table {
		if table[i].name == name {
			return Mode{&table[i]}, nil
		}
	}
	return Mode{}, fmt.Errorf("parse egress mode %.100q: %w, not one of %s", name, ErrMode, strings.Join(Names(), ", "))
}

// Names lists the modes.
func Names() []string {
	var names []string
	for _, r := range table {
		names = append(names, r.name)
	}
	return names
}

func (m Mode) get() row {
	if m.row == nil {
		return table[0]
	}
	return *m.row
}

func (m Mode) String() string { return m.get().name }

// About is the mode in a few words.
func (m Mode) About() string { return m.get().about }

// Everything says that the mode lets data out to anybody, so that it must not meet
// the caller's inputs.
func (m Mode) Everything() bool { return m.get().everything }

// Mirrored says that the mode wants the mirrors of the host's tools too.
func (m Mode) Mirrored() bool { return m.String() == table[1].name }

// GoProxy says that sandboxes have a Go module proxy of their own in this mode.
func (m Mode) GoProxy() bool { return m.Mirrored() }

// Rules gives what the mode allows.
func (m Mode) Rules() []policy.Rule {
	if r := m.get().rules; r != nil {
		return slices.Clip(r())
	}
	return nil
}
