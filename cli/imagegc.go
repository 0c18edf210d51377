package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"demesne/cli/app"
	"demesne/cli/stream"
	"demesne/images"
	"demesne/images/compression"
	"demesne/images/oci"
	"demesne/internal/cmdline"
	"demesne/runner/client"
)

// freedInfo is the output of gc --json.
type freedInfo struct {
	Images []oci.Digest `json:"images"`
	Names  []string     `json:"names"`
	Blobs  int          `json:"blobs"`
	Bytes  int64        `json:"bytes"`          // of blobs and downloads
	Trees  int64        `json:"trees_bytes"`    // of unpacked layers
	Left   []string     `json:"left,omitempty"` // directories with files of another id map
}

// cmdGC removes unused images and blobs. Then it removes, under the ids that own them, the unpacked layers that
// no image uses any more.
func cmdGC(a *app.App, o *options, args []string) (int, error) {
	if len(args) > 0 {
		return 0, fmt.Errorf("unexpected argument %q", args[0])
	}
	switch {
	case o.runner:
		return retireRunner(a, &o.gcOptions, o.json)
	case o.outputs:
		return gcOutputs(a, &o.gcOptions, o.json)
	}
	if err := tidy(a); err != nil {
		return 0, err
	}
	t := imageTool{a}
	return t.WithImages(func(ctx context.Context, c *images.Client) (int, error) {
		release, layers, err := t.holdKept(ctx, c.Store, func(err error) { a.Say("gc: " + err.Error()) })
		if err != nil {
			return 0, err
		}
		defer release()
		caches, err := dropBuilds(ctx, c, &o.gcOptions)
		if err != nil {
			return 0, err
		}
		old := images.GCOptions{All: o.all, OlderThan: o.olderThan}
		if o.blobs {
			old.Unpacked = c.Unpacked
		}
		freed, err := c.Store.GC(ctx, old)
		if err != nil {
			return 0, err
		}
		trees, left, err := c.Sweep(ctx, layers)
		if err != nil {
			return 0, err
		}
		if left = append(left, caches...); len(left) > 0 {
			a.Say("gc: files of another id map stay in " + strings.Join(left, ", ") + "; a gc with that id map removes them")
		}
		if o.json {
			return a.PrintJSON(freedInfo{
				append([]oci.Digest{}, freed.Images...), append([]string{}, freed.Names...), freed.Blobs, freed.Bytes, trees, left,
			})
		}
		return a.Print(freedText(freed, trees))
	})
}

// buildLife is how long the results of a build are kept after their last use.
const buildLife = 7 * 24 * time.Hour

// dropBuilds forgets the results of build steps, whose layers the garbage collection then removes.
func dropBuilds(ctx context.Context, c *images.Client, o *gcOptions) (left []string, err error) {
	if !o.build {
		return nil, nil
	}
	before := time.Now().Add(-cmp.Or(o.olderThan, buildLife))
	if o.all {
		before = time.Now().Add(time.Hour) // also those of clocks that are ahead
	}
	return c.DropSteps(ctx, before)
}

// tidy removes ended jobs, old logs and what killed sessions of agents left.
func tidy(a *app.App) error {
	err := a.Session(nil, nil).Tidy()
	if home := a.Getenv("HOME"); home != "" {
		err = errors.Join(err, gcSessions(home))
	}
	return err
}

// retireRunner ends an idle runner. A runner with sandboxes goes on until they end.
func retireRunner(a *app.App, o *gcOptions, json bool) (int, error) {
	if o.all || o.build || o.olderThan != 0 || json || o.outputs || o.blobs {
		return 0, errors.New("--runner: cannot be combined with other flags")
	}
	sig := stream.WatchSignals(a.Quit, &stream.Terminal{Fd: -1})
	dir, err := images.DefaultDir()
	if err != nil {
		return 0, err
	}
	n, err := client.Retire(sig.Ctx)
	if err = errors.Join(err, compression.End(dir)); err != nil {
		return 0, err
	}
	if n > 0 {
		a.Say(fmt.Sprintf("gc: the runner continues: %d running", n))
	}
	return 0, nil
}

func freedText(f *images.Freed, trees int64) string {
	var b strings.Builder
	for _, full := range f.Names {
		fmt.Fprintf(&b, "removed %s\n", shortName(full))
	}
	fmt.Fprintf(&b, "freed %s\n", cmdline.FormatBytes(f.Bytes+trees))
	return b.String()
}
