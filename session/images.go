package session

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"sync"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/runner/client"
)

// OpenImages opens the environment's image store, and locates the programs that fill it.
func OpenImages() (*images.Client, error) {
	dir, err := images.DefaultDir()
	if err != nil {
		return nil, err
	}
	store, err := images.Open(dir)
	if err != nil {
		return nil, err
	}
	program, err := client.FindProgram("demesne-images")
	if err != nil {
		return nil, err
	}
	c := &images.Client{Store: store, Program: program}
	unpackIn(c, client.NewUserns)
	return c, nil
}

// unpackIn makes c unpack and remove layers in the user namespace that open returns, and look there for unpacked layers.
// So both agree on the id map. open is called when that is needed, once.
func unpackIn(c *images.Client, open func() (*client.Userns, error)) {
	store := c.Store.Dir()
	ns := sync.OnceValues(open)
	c.Enter = func(ctx context.Context, cmd *exec.Cmd) error {
		u, err := ns()
		if err != nil {
			return err
		}
		return u.Enter(ctx, cmd, filepath.Join(store, "trees"))
	}
	if plain := client.PlainUserns(); plain != nil {
		c.EnterPlain = func(ctx context.Context, cmd *exec.Cmd) error { return plain.Enter(ctx, cmd, "") }
	}
	c.Unpacked = func(id oci.Digest) bool {
		u, err := ns()
		return err == nil && u.Unpacked(store, string(id))
	}
}

// ParseImage is imageref.Parse, but its error does not repeat the name, which the caller's message has.
func ParseImage(name string) (imageref.Ref, error) {
	ref, err := imageref.Parse(name)
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return ref, err
}
