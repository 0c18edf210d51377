package session

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
	enter := func(ctx context.Context, c *exec.Cmd) error {
		// The helper may run under another user id, and creates trees: prepare their directory for it.
		if err := client.PrepareOwned(filepath.Join(store.Dir(), "trees")); err != nil {
			return fmt.Errorf("prepare store %q: %w", store.Dir(), err)
		}
		return client.Enter(ctx, c)
	}
	unpacked := func(id oci.Digest) bool {
		_, ok := Unpacked(store, []oci.Digest{id})
		return ok
	}
	builder := func() (string, error) { return client.FindProgram("demesne-build") }
	return &images.Client{Store: store, Program: program, Builder: builder, Enter: enter, Unpacked: unpacked}, nil
}

// Unpacked reports whether all layers are unpacked, for any id map, and how many bytes they use on disk.
func Unpacked(store *images.Store, diffIDs []oci.Digest) (disk int64, ok bool) {
	var ids []layers.DiffID
	for _, id := range diffIDs {
		ids = append(ids, layers.DiffID(id))
	}
	return layers.All(store.Dir(), ids)
}

// ParseImage is imageref.Parse, but its error does not repeat the name, which the caller's message has.
func ParseImage(name string) (imageref.Ref, error) {
	ref, err := imageref.Parse(name)
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return ref, err
}
