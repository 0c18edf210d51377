package cow

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"demesne/rootfs/upper"
)

// Applied is the outcome of Apply.
type Applied struct {
	Done    []Edit
	Refused []Refusal
	Left    []Edit // files that the host would execute, unless the caller named them
}

// Refusal is an edit that could not be applied.
type Refusal struct {
	Edit
	Err error
}

// The reasons why an applier does not make an edit.
var (
	errLeft = errors.New("the host would execute it")
	ErrKept = errors.New("kept for later")
	ErrQuit = errors.New("kept for later, with all further changes")
)

// Applier makes one edit, or returns why it does not.
type Applier func(over *upper.Over, e Edit) error

// Directly makes edits without a question. Unless paths name them, it leaves out the files that programs of the host would
// execute and that a sandbox has no need to change. With force it replaces files that the caller changed meanwhile.
func Directly(paths []string, force bool) Applier {
	return func(over *upper.Over, e Edit) error {
		if len(paths) == 0 && e.Guarded {
			return errLeft
		}
		return over.Apply(e.Edit, force)
	}
}

// Apply makes changes in the caller's directories: those at or below paths, which are absolute, or all.
func (c *Set) Apply(paths []string, apply Applier) (done Applied, err error) {
	o, err := c.open()
	if err != nil {
		return done, err
	}
	defer o.close()
	chosen, all, err := o.chosen(paths)
	if err != nil {
		return done, err
	}
	if !all {
		return done, fmt.Errorf("changes %q: too many to apply", c.ID)
	}
edits:
	for _, e := range chosen {
		switch err := apply(o.all[e.dir], e); err {
		case nil:
			done.Done = append(done.Done, e)
		case errLeft:
			done.Left = append(done.Left, e)
		case ErrKept:
		case ErrQuit:
			break edits
		default:
			done.Refused = append(done.Refused, Refusal{e, err})
		}
	}
	for _, over := range o.all {
		if over != nil {
			err = errors.Join(err, over.Finish())
		}
	}
	return done, errors.Join(err, o.save())
}

// chosen returns the edits at or below paths in the order in which they are applied; see choose.
func (o *overs) chosen(paths []string) ([]Edit, bool, error) {
	edits, all, err := o.edits()
	if err != nil {
		return nil, false, err
	}
	edits, err = choose(edits, paths)
	return edits, all, err
}

// choose returns the edits at or below paths, in the order in which they are applied: deletions last, the deepest first.
func choose(edits []Edit, paths []string) (chosen []Edit, err error) {
	at := func(e Edit, p string) bool {
		return e.Path == p || strings.HasPrefix(e.Path, strings.TrimSuffix(p, "/")+"/")
	}
	for _, p := range paths {
		if !slices.ContainsFunc(edits, func(e Edit) bool { return at(e, p) }) {
			return nil, fmt.Errorf("path %q: nothing changed there", p)
		}
	}
	var deleted []Edit
	for _, e := range edits {
		switch {
		case len(paths) > 0 && !slices.ContainsFunc(paths, func(p string) bool { return at(e, p) }):
		case e.Kind == 'D':
			deleted = append(deleted, e)
		default:
			chosen = append(chosen, e)
		}
	}
	slices.Reverse(deleted)
	chosen = append(chosen, deleted...)
	parents := map[string]bool{}
	for _, e := range chosen {
		parents[filepath.Dir(e.Path)] = true
	}
	for i := range chosen {
		chosen[i].Parent = parents[chosen[i].Path]
	}
	return chosen, nil
}
