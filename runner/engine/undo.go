package engine

// undo is a stack of clean-ups: filled while a sandbox is made, run from the top
// when making it fails, or when it ends.
type undo []func()

func (u *undo) add(f func()) { *u = append(*u, f) }

// last adds what is to be undone when all else is.
func (u *undo) last(f func()) { *u = append(undo{f}, *u...) }

func (u *undo) run() {
	for i := len(*u) - 1; i >= 0; i-- {
		(*u)[i]()
	}
	*u = nil
}
