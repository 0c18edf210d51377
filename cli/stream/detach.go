package stream

import "errors"

// errDetached ends the input pump when the caller detaches from the command.
var errDetached = errors.New("detached")

// DetachKeys recognizes Ctrl-P followed by Ctrl-Q, as in docker.
type DetachKeys struct {
	half bool // Ctrl-P was typed, and not yet passed on
	Left chan struct{}
}

// NewDetachKeys returns the keys in a state where none was typed.
func NewDetachKeys() *DetachKeys { return &DetachKeys{Left: make(chan struct{})} }

const (
	ctrlP = 0x10
	ctrlQ = 0x11
)

// edit passes on what was typed, without the detach keys.
func (k *DetachKeys) edit(typed []byte) ([]byte, error) {
	out := make([]byte, 0, len(typed)+1)
	for _, c := range typed {
		if k.half && c == ctrlQ {
			close(k.Left)
			return out, errDetached
		}
		if k.half {
			out = append(out, ctrlP)
		}
		if k.half = c == ctrlP; !k.half {
			out = append(out, c)
		}
	}
	return out, nil
}
