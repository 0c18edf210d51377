package base

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/rootfs/layers"
	"demesne/runner/client"
)

// Images opens the store of the environment, and says where the programs that fill it are.
func Images() (*images.Client, error) {
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
	enter := func(ctx context.Context, c *exec.Cmd) error {
		// What is started may be another user than this one, and makes trees.
		if err := client.PrepareOwned(filepath.Join(store.Dir(), "trees")); err != nil {
			return fmt.Errorf("prepare store %q: %w", store.Dir(), err)
		}
		return client.Enter(ctx, c)
	}
	unpacked := func(id oci.Digest) bool {
		_, ok := Unpacked(store, []oci.Digest{id})
		return ok
	}
	return &images.Client{Store: store, Program: program, Enter: enter, Unpacked: unpacked}, nil
}

// Unpacked tells whether all of the layers are unpacked, for whatever ids, and what they take on the
// disk so.
func Unpacked(store *images.Store, diffIDs []oci.Digest) (disk int64, ok bool) {
	var ids []layers.DiffID
	for _, id := range diffIDs {
		ids = append(ids, layers.DiffID(id))
	}
	return layers.All(store.Dir(), ids)
}

// Parse is imageref.Parse without what its error says of the name, which whoever took the
// name says as well.
func Parse(name string) (imageref.Ref, error) {
	ref, err := imageref.Parse(name)
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return ref, err
}
