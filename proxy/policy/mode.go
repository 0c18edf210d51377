package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// errMode is the error that an unknown mode wraps.
var errMode = errors.New("unknown egress mode")

// Mode names what a sandbox may reach before any rule is added. The zero Mode is "none".
type Mode struct{ row *modeRow }

// modeRow defines one mode. To add a mode, add a row to modeTable.
type modeRow struct {
	name, about string
	rules       func() []Rule
	everything  bool
}

var modeTable = []modeRow{
	{name: "none", about: "only what rules allow"},
	{name: "package-managers", about: "the servers of package managers, and the mirrors this host uses", rules: managers},
	{name: "open", about: "every public address", rules: func() []Rule { return []Rule{Everything()} }, everything: true},
}

// ParseMode returns the mode with that name.
func ParseMode(name string) (Mode, error) {
	for i := range modeTable {
		if modeTable[i].name == name {
			return Mode{&modeTable[i]}, nil
		}
	}
	return Mode{}, fmt.Errorf("parse egress mode %.100q: %w, not one of %s", name, errMode, strings.Join(ModeNames(), ", "))
}

// ModeNames returns the names of the modes.
func ModeNames() []string {
	var names []string
	for _, r := range modeTable {
		names = append(names, r.name)
	}
	return names
}

func (m Mode) get() modeRow {
	if m.row == nil {
		return modeTable[0]
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
func (m Mode) Mirrored() bool { return m.String() == modeTable[1].name }

// GoProxy reports whether sandboxes get their own Go module proxy in this mode.
func (m Mode) GoProxy() bool { return m.Mirrored() }

// Rules returns the rules of the mode.
func (m Mode) Rules() []Rule {
	if r := m.get().rules; r != nil {
		return slices.Clip(r())
	}
	return nil
}
