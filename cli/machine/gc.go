package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"demesne/agents/terminal"
	"demesne/cli/app"
	"demesne/cli/stream"
	"demesne/images"
	"demesne/images/compression"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner/client"
	"demesne/session"
)

// GC returns gc.
func GC() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "gc", Usage: []string{"[--all] [--older-than DURATION] [--blobs] [--json]", "--outputs [--older-than DURATION] [--json]", "--runner"},
			Summary: "remove unused data",
			About: `Removes data that no image needs: blobs, unpacked layers, abandoned downloads. --all and --older-than remove images
first. It also removes jobs a week after their end, network logs that did not change for a week, manifests without an
output directory, and what killed sessions of demesne agent left. It keeps everything that a sandbox, a pull or another
user's demesne uses.

With --blobs it also removes the compressed layers of pulled images that are unpacked, and keeps the images. They run
without a network. save, export and commit fetch such layers again from the registry. Images that were made here keep
their blobs, as do the images below them.

demesne build compresses the layers of a named image in the background, for demesne push. gc removes compressed layers
that no push used for a week, and --all removes them all.

With --outputs it removes output directories instead: empty ones, and with --older-than also older ones, by their last
change. It keeps directories that a sandbox, a run or a job uses. With --older-than it also removes network logs that
did not change, and jobs that ended, before that time. demesne serve --keep-outputs does this by itself.`,
			Examples: []cmdline.Example{
				{Says: "remove unused data, and keep all images", Line: "demesne gc"},
				{Says: "remove images that no sandbox used for a week", Line: "demesne gc --older-than 168h"},
				{Says: "remove all unused images", Line: "demesne gc --all"},
				{Says: "keep images only in unpacked form", Line: "demesne gc --blobs"},
				{Says: "remove outputs that did not change for a week", Line: "demesne gc --outputs --older-than 168h"},
				{Says: "end a lingering runner, and compression, now (see DEMESNE_LINGER)", Line: "demesne gc --runner"},
			},
		},
		New: func(a *app.App) app.Options { return &gcOptions{App: a} },
	}
}

type gcOptions struct {
	*app.App
	all, outputs bool
	build, blobs bool
	olderThan    time.Duration
	runner, json bool
}

func (o *gcOptions) Flags() cmdline.Flags {
	return slices.Concat(cmdline.Flags{
		{Group: cmdline.GroupGeneral, Long: "all", Short: 'a', Set: cmdline.On(&o.all), Help: "remove every image that is not in use"},
		{Group: cmdline.GroupGeneral, Long: "older-than", Arg: "DURATION", Set: cmdline.Duration(&o.olderThan),
			Help: "remove images that no sandbox used for this time, such as 168h; with --outputs, output directories"},
		{Group: cmdline.GroupGeneral, Long: "build", Set: cmdline.On(&o.build),
			Help: "also remove results of build steps, and caches of RUN --mount=type=cache, not used for a week, or --older-than; with --all, every one"},
		{Group: cmdline.GroupGeneral, Long: "blobs", Set: cmdline.On(&o.blobs),
			Help: "remove the blobs of unpacked layers, too; they are fetched again when needed"},
		{Group: cmdline.GroupGeneral, Long: "outputs", Set: cmdline.On(&o.outputs), Help: "remove unused output directories: empty ones, and with --older-than old ones"},
		{Group: cmdline.GroupGeneral, Long: "runner", Set: cmdline.On(&o.runner), Help: "only end a runner that lingers after its last sandbox"},
	}, app.JSONFlag(&o.json))
}

// freedInfo is the output of gc --json.
type freedInfo struct {
	Images []oci.Digest `json:"images"`
	Names  []string     `json:"names"`
	Blobs  int          `json:"blobs"`
	Bytes  int64        `json:"bytes"`          // of blobs and downloads
	Trees  int64        `json:"trees_bytes"`    // of unpacked layers
	Left   []string     `json:"left,omitempty"` // directories with files of another id map
}

// Run removes unused images and blobs. Then it removes, under the ids that own them, the unpacked layers that
// no image uses any more.
func (o *gcOptions) Run(args []string) (int, error) {
	if len(args) > 0 {
		return 0, fmt.Errorf("unexpected argument %q", args[0])
	}
	switch {
	case o.runner:
		return o.retireRunner()
	case o.outputs:
		return o.removeOutputs()
	}
	if err := o.tidy(); err != nil {
		return 0, err
	}
	return o.WithImages(func(ctx context.Context, c *images.Client) (int, error) {
		sess := o.Session(session.Options{})
		defer sess.Close()
		release, layers, err := sess.HoldStored(ctx, c.Store, func(err error) { o.Say("gc: " + err.Error()) })
		if err != nil {
			return 0, err
		}
		defer release()
		caches, err := o.dropBuilds(ctx, c)
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
			o.Say("gc: files of another id map stay in " + strings.Join(left, ", ") + "; a gc with that id map removes them")
		}
		if o.json {
			return o.PrintJSON(freedInfo{
				append([]oci.Digest{}, freed.Images...), append([]string{}, freed.Names...), freed.Blobs, freed.Bytes, trees, left,
			})
		}
		return o.Print(freedText(freed, trees))
	})
}

// buildLife is how long the results of a build are kept after their last use.
const buildLife = 7 * 24 * time.Hour

// dropBuilds forgets the results of build steps, whose layers the garbage collection then removes.
func (o *gcOptions) dropBuilds(ctx context.Context, c *images.Client) (left []string, err error) {
	if !o.build {
		return nil, nil
	}
	before := time.Now().Add(-cmp.Or(o.olderThan, buildLife))
	if o.all {
		before = time.Now().Add(time.Hour) // also the results of clocks that are ahead
	}
	return c.DropSteps(ctx, before)
}

// tidy removes ended jobs, old logs, and what killed runners and sessions of agents left.
func (o *gcOptions) tidy() error {
	client.RemoveLeft()
	err := o.Session(session.Options{}).Tidy()
	if home := o.Getenv("HOME"); home != "" {
		err = errors.Join(err, terminal.RemoveSessions(home))
	}
	return err
}

// retireRunner ends an idle runner. A runner with sandboxes goes on until they end.
func (o *gcOptions) retireRunner() (int, error) {
	if o.all || o.build || o.olderThan != 0 || o.json || o.outputs || o.blobs {
		return 0, errors.New("--runner: cannot be combined with other flags")
	}
	sig := stream.WatchSignals(o.Quit, &stream.Terminal{Fd: -1})
	dir, err := images.DefaultDir()
	if err != nil {
		return 0, err
	}
	n, err := client.Retire(sig.Ctx)
	if err = errors.Join(err, compression.End(dir)); err != nil {
		return 0, err
	}
	if n > 0 {
		o.Say(fmt.Sprintf("gc: the runner continues: %d running", n))
	}
	return 0, nil
}

func freedText(f *images.Freed, trees int64) string {
	var b strings.Builder
	for _, full := range f.Names {
		fmt.Fprintf(&b, "removed %s\n", imageref.Short(full))
	}
	fmt.Fprintf(&b, "freed %s\n", text.FormatBytes(f.Bytes+trees))
	return b.String()
}

// removeOutputs removes unused outputs only, and with --older-than logs and jobs.
func (o *gcOptions) removeOutputs() (int, error) {
	if o.all {
		return 0, text.Hinted(errors.New("--all: cannot be combined with --outputs"), "demesne gc --outputs --older-than 1s removes all unused output directories")
	}
	if o.blobs {
		return 0, errors.New("--blobs: cannot be combined with --outputs")
	}
	var before time.Time
	if o.olderThan > 0 {
		before = time.Now().Add(-o.olderThan)
	}
	done, err := o.Session(session.Options{}).PruneOutputs(context.Background(), before)
	if err != nil {
		return 0, err
	}
	if o.json {
		return o.PrintJSON(done)
	}
	also := ""
	if done.Logs+done.Jobs > 0 {
		also = fmt.Sprintf(", %d network logs and %d jobs", done.Logs, done.Jobs)
	}
	return o.Print(fmt.Sprintf("removed %d output directories%s, freed %s\n", done.Dirs, also, text.FormatBytes(done.Bytes)))
}
