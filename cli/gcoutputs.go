package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"demesne/cli/app"
	"demesne/internal/cmdline"
)

// gcOutputs removes unused outputs only, and with --older-than logs and jobs.
func gcOutputs(a *app.App, o *gcOptions, json bool) (int, error) {
	if o.all {
		return 0, app.Hinted(errors.New("--all: cannot be combined with --outputs"), "demesne gc --outputs --older-than 1s removes all unused output directories")
	}
	if o.blobs {
		return 0, errors.New("--blobs: cannot be combined with --outputs")
	}
	var before time.Time
	if o.olderThan > 0 {
		before = time.Now().Add(-o.olderThan)
	}
	done, err := a.Session(nil, nil).PruneOutputs(context.Background(), before)
	if err != nil {
		return 0, err
	}
	if json {
		return a.PrintJSON(done)
	}
	also := ""
	if done.Logs+done.Jobs > 0 {
		also = fmt.Sprintf(", %d network logs and %d jobs", done.Logs, done.Jobs)
	}
	return a.Print(fmt.Sprintf("removed %d output directories%s, freed %s\n", done.Dirs, also, cmdline.FormatBytes(done.Bytes)))
}
