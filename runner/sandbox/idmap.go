package sandbox

import (
	"errors"
	"fmt"
	"io/fs"

	"demesne/rootfs/layers"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/store"
)

// idMap names the id mapping of the files of a persistent sandbox. Their owners mean nothing under another mapping.
func (m *Machine) idMap() string {
	if m.minimal() {
		return "minimal"
	}
	return layerKey(m.Boot)
}

// layerKey names the id mapping that layers must be unpacked under.
func layerKey(b api.Boot) string { return layers.Key(extents(b.UIDMap), extents(b.GIDMap)) }

func extents(ranges []runner.IDRange) (m []layers.IDMap) {
	for _, r := range ranges {
		m = append(m, layers.IDMap(r))
	}
	return m
}

// mapped returns an error unless the files of a sandbox have the id mapping of this runner. Otherwise the owners of files
// would be wrong, and some files could not be read.
func (m *Machine) mapped(rec store.Record) error {
	if rec.Map == m.idMap() {
		return nil
	}
	return unlike(m.Boot, rec, m.idMap())
}

// unlike describes how the id mapping of a sandbox differs from own, the runner's. It is pure.
func unlike(b api.Boot, rec store.Record, own string) *ipc.Error {
	here := own
	if b.MapWhy != "" {
		here += ": " + b.MapWhy
	}
	e := ipc.Errorf(ipc.CodeRequirement, "use sandbox %q: its files have the id map %s, and this runner has %s", rec.Info.ID, rec.Map, here)
	switch e.Hint = b.MapFix; {
	case rec.Map == singleKey(b):
		e.Hint = "setpriv --no-new-privs demesne …  # makes a runner with one id"
	case e.Hint == "" && b.OneID():
		e.Hint = "call demesne from a shell that can gain privileges, without no_new_privs"
	}
	return e
}

// singleKey names the mapping of only the ids of root of b, which an equal caller without subordinate ids has.
func singleKey(b api.Boot) string {
	if len(b.UIDMap) == 0 || len(b.GIDMap) == 0 {
		return ""
	}
	one := func(r runner.IDRange) []layers.IDMap { return []layers.IDMap{{Host: r.Host, Size: 1}} }
	return layers.Key(one(b.UIDMap[0]), one(b.GIDMap[0]))
}

// LeftBehind adds to the error of a removal that the rest belongs to another id map. It returns other errors unchanged.
func LeftBehind(err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return &ipc.Error{
		Code: ipc.CodeRequirement,
		Text: fmt.Sprintf("%v: files of another id map are left", err), Hint: "demesne gc removes them, with the id map that the sandbox had",
	}
}
