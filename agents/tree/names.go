package tree

import (
	"errors"
	"fmt"
	"sync"
)

// maxName is the longest name of a child, in bytes.
const maxName = 40

// checkChild checks the name of a child. It is a file name and a word in every text.
func checkChild(name string) error {
	switch {
	case name == "":
		return errors.New("name is required")
	case len(name) > maxName:
		return fmt.Errorf("name must be at most %d characters", maxName)
	}
	for i, c := range []byte(name) {
		letter := 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
		if !letter && (c != '-' || i == 0 || i == len(name)-1) {
			return fmt.Errorf("invalid child name %q: use lowercase letters, digits, and interior hyphens only", name)
		}
	}
	return nil
}

// names are the names of one agent's children. A name is taken once its child has been created; while it is being created
// the name is reserved. The zero value is ready.
type names struct {
	mu    sync.Mutex
	taken map[string]bool
}

// reserve reserves a name. release gives it back; the caller does not call it once the child exists.
func (n *names) reserve(name string) (release func(), err error) {
	if err := checkChild(name); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.taken[name] {
		return nil, fmt.Errorf("child name %q is already used in this sandbox", name)
	}
	if n.taken == nil {
		n.taken = map[string]bool{}
	}
	n.taken[name] = true
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.taken, name)
	}, nil
}
