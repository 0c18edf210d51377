package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"demesne/cli/app"
	"demesne/cli/progress"
	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/rootfs/layers"
)

func imagesCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "images", Usage: []string{"[--all] [--json | -q]", "check [--list FILE] [--json]"}, Summary: "list images, or check their contents",
			About: `Lists the local images: the size of the download, how much of it other images share, the unpacked size, and the last
use by a sandbox.

demesne images check reads all contents instead, and compares them with their digests. It removes content that does not
match, and exits 1 if it found any. The next pull or run of such an image downloads that content again. With --list it only
says which of the images that FILE names are here and which are missing, and exits 1 if any is missing.`,
			Examples: []cmdline.Example{
				{Says: "list local images", Line: "demesne images"},
				{Says: "list the catalogue too", Line: "demesne images --all"},
				{Says: "check after a disk error", Line: "demesne images check"},
				{Says: "say which images of a list are missing", Line: "demesne images check --list images.txt"},
			},
			Words: []string{"check"},
		},
		New: func(a *app.App) app.Options { return &listOptions{App: a} },
	}
}

// imageInfo is an image as --json prints it.
type imageInfo struct {
	Names    []string    `json:"names"` // full names
	Digest   oci.Digest  `json:"digest,omitempty"`
	Index    oci.Digest  `json:"index_digest,omitempty"`
	Size     int64       `json:"size"`                 // of its blobs, in bytes
	Built    int64       `json:"built_size,omitempty"` // rough size on disk of an image that demesne builds on first use
	Shared   int64       `json:"shared"`               // bytes of Size shared with other images
	Dropped  int64       `json:"dropped"`              // bytes of Size whose blobs gc dropped
	Unpacked int64       `json:"unpacked"`             // disk use of its unpacked layers; 0 if not all are unpacked
	InUse    bool        `json:"in_use"`
	Platform string      `json:"platform,omitempty"`
	Layers   []oci.Layer `json:"layers,omitempty"`
	Created  time.Time   `json:"created,omitzero"`
	Pulled   time.Time   `json:"pulled,omitzero"`
	Used     time.Time   `json:"used,omitzero"`
	Damage   string      `json:"damage,omitempty"`
}

func infoOf(l images.Listed) imageInfo {
	i := imageInfo{
		Names: append([]string{}, l.Names...), Digest: l.Digest, Index: l.Index, Size: l.Size, Shared: l.Shared, Dropped: l.Dropped, InUse: l.InUse,
		Layers: l.Layers, Created: l.Created, Pulled: l.Pulled, Used: l.Used,
	}
	if c := l.Config; c.OS != "" {
		i.Platform = c.OS + "/" + c.Architecture
	}
	if l.Err != nil {
		i.Damage = l.Err.Error()
	}
	return i
}

type listOptions struct {
	*app.App
	all, json, quiet bool
	list             string
}

func (o *listOptions) Flags() cmdline.Flags {
	return slices.Concat(cmdline.Flags{{Group: app.GroupResult, Long: "all", Short: 'a', Set: cmdline.On(&o.all),
		Help: "list the whole catalogue, with images that are not pulled yet"}},
		listFlag(&o.list, "with check: the images that a file names, one a line, or - for stdin"),
		app.JSONFlag(&o.json), app.QuietFlag(&o.quiet, "print only the names"))
}

func (o *listOptions) Run(args []string) (int, error) {
	switch {
	case len(args) > 1 || len(args) == 1 && args[0] != "check":
		return 0, fmt.Errorf("unexpected argument %q", args[len(args)-1])
	case len(args) == 1 && o.list != "":
		return o.checkSet()
	case o.list != "":
		return 0, errors.New("--list: needs the word check")
	case len(args) == 1:
		return o.verify()
	}
	return o.WithImages(func(_ context.Context, c *images.Client) (int, error) {
		list, err := c.Store.List()
		if err != nil {
			return 0, err
		}
		infos := []imageInfo{}
		for _, l := range list {
			info := infoOf(l)
			info.Unpacked, _ = layers.All(c.Store.Dir(), diffIDs(l))
			infos = append(infos, info)
		}
		if o.all {
			infos = append(infos, notPulled(infos)...)
		}
		switch {
		case o.json:
			return o.PrintJSON(infos)
		case o.quiet:
			return o.Print(imageNames(infos))
		}
		return o.Print(imageTable(infos, time.Now()))
	})
}

// notPulled returns the names of the catalogue that have no image in the store, with the size of those that demesne builds.
func notPulled(have []imageInfo) (more []imageInfo) {
	for _, name := range imageref.Catalogue() {
		ref, err := imageref.Parse(name)
		pulled := func(i imageInfo) bool { return slices.Contains(i.Names, ref.Full) }
		if err == nil && ref.Stored() && !slices.ContainsFunc(have, pulled) {
			r, _, _ := ref.Recipe()
			more = append(more, imageInfo{Names: []string{ref.Full}, Built: r.Size})
		}
	}
	return more
}

// imageNames returns a line for each name, in the form that --image takes.
func imageNames(infos []imageInfo) string {
	var b strings.Builder
	for _, i := range infos {
		for _, full := range i.Names {
			b.WriteString(imageref.Short(full) + "\n")
		}
	}
	return b.String()
}

// imageTable returns a line for each name, and one for an image without names.
func imageTable(infos []imageInfo, now time.Time) string {
	rows := [][]string{{"NAME", "DIGEST", "SIZE", "SHARED", "UNPACKED", "LAST USED"}}
	for _, i := range infos {
		row := []string{"-", "-", "-", "-", "-", "-"}
		switch {
		case i.Built > 0:
			row = []string{"-", "-", "about " + text.FormatBytes(i.Built), "-", "-", "not built"}
		case i.Digest != "":
			row = []string{"-", progress.ShortDigest(i.Digest), text.FormatBytes(i.Size - i.Dropped), text.FormatBytes(i.Shared), unpacked(i), lastUsed(i, now)}
		}
		for _, full := range i.Names {
			row[0] = imageref.Short(full)
			rows = append(rows, slices.Clone(row))
		}
		if len(i.Names) == 0 {
			rows = append(rows, row)
		}
	}
	return app.Columns(rows)
}

func unpacked(i imageInfo) string {
	if i.Unpacked == 0 {
		return "-"
	}
	return text.FormatBytes(i.Unpacked)
}

func lastUsed(i imageInfo, now time.Time) string {
	switch {
	case i.Damage != "":
		return "damaged"
	case i.InUse:
		return "now"
	case i.Used.IsZero():
		return "-"
	}
	return app.Span(now.Sub(i.Used)) + " ago"
}

// Words returns the names of the images that are here; all adds the names of the catalogue.
func Words(a *app.App, all bool) []string {
	var infos []imageInfo
	a.WithImages(func(_ context.Context, c *images.Client) (int, error) {
		list, err := c.Store.List()
		for _, l := range list {
			infos = append(infos, infoOf(l))
		}
		return 0, err
	})
	if all {
		infos = append(infos, notPulled(infos)...)
	}
	return strings.Fields(imageNames(infos))
}

func diffIDs(img images.Listed) (ids []layers.DiffID) {
	for _, id := range img.DiffIDs() {
		ids = append(ids, layers.DiffID(id))
	}
	return ids
}
