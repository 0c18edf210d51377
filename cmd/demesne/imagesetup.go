package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"demesne/images"
	"demesne/runner"
)

// openImages opens the store, and says where the programs that fill it are.
func openImages() (*images.Client, error) {
	store, err := openStore()
	if err != nil {
		return nil, err
	}
	program, err := runner.FindProgram("demesne-images")
	if err != nil {
		return nil, err
	}
	enter := func(ctx context.Context, c *exec.Cmd) error {
		// What is started may be another user than this one, and makes trees.
		if err := runner.PrepareOwned(filepath.Join(store.Dir(), "trees")); err != nil {
			return fmt.Errorf("prepare store %q: %w", store.Dir(), err)
		}
		return runner.Enter(ctx, c)
	}
	return &images.Client{Store: store, Program: program, Enter: enter}, nil
}

func openStore() (*images.Store, error) {
	dir, err := images.DefaultDir()
	if err != nil {
		return nil, err
	}
	return images.Open(dir)
}

// withImages calls f with the store and a context that ends with INT, TERM, HUP or QUIT.
func (a *app) withImages(f func(context.Context, *images.Client) (int, error)) (int, error) {
	c, err := a.images()
	if err != nil {
		return 0, err
	}
	sig := watchSignals(&terminal{fd: -1})
	code, err := f(sig.ctx, c)
	if gave := sig.gaveUp(); gave != 0 && (err != nil || code != 0) {
		return gave, nil
	}
	return code, err
}

// nameImage says which image err is about, unless it does so itself.
func nameImage(ref images.Reference, err error) error {
	var unknown *images.UnknownError
	if !errors.As(err, &unknown) {
		return err
	}
	maybe := ""
	if unknown.Near != "" {
		maybe = fmt.Sprintf("did you mean %q? ", unknown.Near)
	}
	return fmt.Errorf("image %q: not known (%sknown: %s)", ref.Given, maybe, strings.Join(unknown.Known, ", "))
}
