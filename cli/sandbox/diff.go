package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"demesne/cli/app"
	"demesne/cli/changes"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/session"
	"demesne/session/cow"
)

type diffOptions struct {
	*app.App
	json, patch bool
}

func (o *diffOptions) Flags() cmdline.Flags {
	return append(app.JSONFlag(&o.json), cmdline.Flags{{Group: app.GroupResult, Long: "patch", Short: 'p', Set: cmdline.On(&o.patch),
		Help: "show what changed in files of a directory with mode cow"}}...)
}

func (o *diffOptions) Run(args []string) (int, error) {
	if o.patch {
		if o.json {
			return 0, errors.New("--patch: cannot be combined with --json")
		}
		c, paths, err := changesAnd(args)
		if err != nil {
			return 0, err
		}
		return o.patchChanges(c, paths)
	}
	if len(args) == 0 {
		if c, err := cow.Only(); err == nil && !o.json {
			return o.diffChanges(c)
		}
		return o.listChanges()
	}
	id, err := app.OneSandbox(args)
	if err != nil {
		return 0, err
	}
	apart, _ := cow.Find(id)
	if apart != nil && (apart.ID == id || !apart.Persistent()) {
		return o.diffChanges(apart)
	}
	return o.WithEngine(func(ctx context.Context, eng session.Engine) (int, error) {
		d, err := eng.Diff(ctx, id)
		if err != nil {
			return 0, err
		}
		if o.json {
			d.Changes = append([]runner.Change{}, d.Changes...) // never null
			return o.PrintJSON(d)
		}
		o.tellOthers(apart)
		return o.Print(diffText(d))
	})
}

// diffText returns one line for each change. Names come from the sandbox; they are escaped so that they cannot
// forge lines.
func diffText(d *runner.Diff) string {
	var b strings.Builder
	for _, c := range d.Changes {
		fmt.Fprintf(&b, "%s %s", c.Kind, text.SafeLine(string(c.Path)))
		if c.Executes != "" {
			fmt.Fprintf(&b, "  (executed by %s)", c.Executes)
		}
		b.WriteByte('\n')
	}
	if d.Truncated {
		b.WriteString("… and more\n")
	}
	return b.String()
}

// tellOthers says where to see the changes of a sandbox that diff does not list. c may be nil.
func (o *diffOptions) tellOthers(c *cow.Set) {
	if c != nil {
		fmt.Fprintf(o.Stderr, "hint: demesne diff %s lists the changes to directories with mode cow\n", c.ID)
	}
}

// listChanges lists all changes that are kept apart.
func (o *diffOptions) listChanges() (int, error) {
	all, err := cow.All()
	if err != nil {
		return 0, err
	}
	list := []changesDocument{}
	var b strings.Builder
	for _, c := range all {
		var dirs []string
		d := changesDocument{ID: c.ID, Sandbox: c.Sandbox, Created: c.Created}
		for _, dir := range c.Dirs {
			dirs = append(dirs, text.SafeLine(dir.Path))
			d.Directories = append(d.Directories, dir.Path)
		}
		list = append(list, d)
		fmt.Fprintf(&b, "%s  %s  %s\n", c.ID, c.Created.Local().Format(time.DateTime), strings.Join(dirs, ", "))
	}
	if o.json {
		return o.PrintJSON(list)
	}
	return o.Print(b.String())
}

// patchChanges shows what changed in files, in the order of their names.
func (o *diffOptions) patchChanges(c *cow.Set, paths []string) (int, error) {
	s, err := changes.PatchText(c, paths, cmdline.TerminalOf(o.Stdout, o.Env))
	if err != nil {
		return 0, err
	}
	return o.Page(s)
}

// diffChanges lists one set of changes.
func (o *diffOptions) diffChanges(c *cow.Set) (int, error) {
	edits, all, err := c.Edits()
	if err != nil {
		return 0, err
	}
	if !o.json {
		return o.Print(changes.List(edits, all))
	}
	out := changesDocument{ID: c.ID, Sandbox: c.Sandbox, Created: c.Created, Truncated: !all}
	for _, e := range edits {
		out.Changes = append(out.Changes, changeDocument{Path: ipc.Bytes(e.Path), Kind: string(e.Kind), Executes: e.By, Guarded: e.Guarded, LeadsTo: ipc.Bytes(e.Leads), Changed: e.Changed, Special: e.Special})
	}
	return o.PrintJSON(out)
}

// changesDocument is the output of diff --json for changes that are kept apart. In the list of all changes it has the
// directories, and no single change.
type changesDocument struct {
	ID          string           `json:"id"`
	Sandbox     string           `json:"sandbox,omitempty"`
	Created     time.Time        `json:"created"`
	Directories []string         `json:"directories,omitempty"`
	Changes     []changeDocument `json:"changes,omitempty"`
	Truncated   bool             `json:"truncated,omitempty"`
}

type changeDocument struct {
	Path     ipc.Bytes `json:"path"` // on this machine, absolute
	Kind     string    `json:"kind"` // A, M or D
	Executes string    `json:"executes,omitempty"`
	Guarded  bool      `json:"guarded,omitempty"`  // apply leaves it out unless it is named
	LeadsTo  ipc.Bytes `json:"leads_to,omitempty"` // target of a link that leads out of the directory
	Changed  bool      `json:"changed,omitempty"`  // the caller changed the file meanwhile
	Special  bool      `json:"special,omitempty"`  // a device, fifo or socket: never applied
}
