package preset

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"demesne/proxy/policy"
)

// errMode is the error that an unknown mode wraps.
var errMode = errors.New("unknown egress mode")

// Mode names what a sandbox may reach before any rule is added. The zero Mode is "none".
type Mode struct{ row *row }

// row defines one mode. To add a mode, add a row to table.
type row struct {
	name, about string
	rules       func() []policy.Rule
	everything  bool
}

var table = []row{
	{name: "none", about: "only what rules allow"},
	{name: "package-managers", about: "the servers of package managers, and the mirrors this host uses", rules: managers},
	{name: "open", about: "every public address", rules: func() []policy.Rule { return []policy.Rule{policy.Everything()} }, everything: true},
}

// Parse returns the mode with that name.
func Parse(name string) (Mode, error) {
	for i := range table {
		if table[i].name == name {
			return Mode{&table[i]}, nil
		}
	}
	return Mode{}, fmt.Errorf("parse egress mode %.100q: %w, not one of %s", name, errMode, strings.Join(Names(), ", "))
}

// Names returns the names of the modes.
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

// About describes the mode in a few words.
func (m Mode) About() string { return m.get().about }

// Everything reports whether the mode allows data to leave to any server. It must then not be combined with the
// caller's inputs.
func (m Mode) Everything() bool { return m.get().everything }

// Mirrored reports whether the mode also allows the mirrors of the host's tools.
func (m Mode) Mirrored() bool { return m.String() == table[1].name }

// GoProxy reports whether sandboxes get their own Go module proxy in this mode.
func (m Mode) GoProxy() bool { return m.Mirrored() }

// Rules returns the rules of the mode.
func (m Mode) Rules() []policy.Rule {
	if r := m.get().rules; r != nil {
		return slices.Clip(r())
	}
	return nil
}
