package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"demesne/build/recipe"
	"demesne/images"
	"demesne/images/oci"
	"demesne/internal/flock"
	"demesne/runner"
)

// once builds the image of a recipe, unless it is in the store. One process builds it, and others wait for its result.
func (b *Builder) once(ctx context.Context) (oci.Digest, error) {
	dir := filepath.Join(b.images.Store.Dir(), "step-locks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("lock recipe: %w", err)
	}
	path := filepath.Join(dir, "recipe-"+b.Recipe.Name)
	lock, err := flock.TryOpen(path, os.O_RDWR|os.O_CREATE, flock.Exclusive)
	if errors.Is(err, flock.ErrLocked) {
		b.show.note("another process builds this image: waiting")
		lock, err = flock.Open(ctx, path, os.O_RDWR|os.O_CREATE, flock.Exclusive)
	}
	if err != nil {
		return "", fmt.Errorf("lock recipe: %w", err)
	}
	defer lock.Close()
	if !b.NoCache {
		img, err := b.images.Store.Lookup(b.Names[len(b.Names)-1])
		if err == nil && b.images.Store.Whole(img) == nil {
			return img.Digest, nil
		}
		if err != nil && !errors.Is(err, images.ErrNotFound) && !errors.Is(err, images.ErrCorrupt) {
			return "", err
		}
	}
	b.show.note(b.Recipe.Notice())
	return b.build(ctx)
}

// bootstraps mounts this program for a RUN that calls it.
func (m *mounts) bootstraps(argv []string) error {
	if m.Recipe == nil || len(argv) == 0 || argv[0] != recipe.BootstrapPath {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	m.list = append(m.list, runner.Mount{Source: self, Target: recipe.BootstrapPath, ReadOnly: true})
	return nil
}
