package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"demesne/cmd/internal/cli"
	"demesne/cmd/internal/outputs"
	"demesne/runner"
	"demesne/runner/client"
)

// gcOutputs removes unused output directories only.
func (a *app) gcOutputs(o *options) (int, error) {
	if o.all {
		return 0, hinted(errors.New("--all: cannot be combined with --outputs"), "demesne gc --outputs --older-than 1s removes all unused output directories")
	}
	root, err := client.OutputRoot()
	if err != nil {
		return 0, err
	}
	opts := outputs.Options{Root: root, InUse: a.sandboxes}
	if o.olderThan > 0 {
		opts.Before = time.Now().Add(-o.olderThan)
	}
	done, err := outputs.Prune(opts)
	if err != nil {
		return 0, err
	}
	if o.json {
		return a.printJSON(done)
	}
	return a.print(fmt.Sprintf("removed %d output directories, freed %s\n", done.Dirs, cli.FormatBytes(done.Bytes)))
}

// sandboxes returns all sandboxes, including stopped ones and snapshots.
func (a *app) sandboxes() (infos []runner.Info, err error) {
	_, err = a.with(func(ctx context.Context, eng engine) (int, error) {
		infos, err = eng.List(ctx)
		return 0, err
	})
	return infos, err
}
