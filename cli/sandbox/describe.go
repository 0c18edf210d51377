package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/session"
)

// Inspect returns demesne inspect.
func Inspect() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "inspect", Usage: []string{"[--json] ID"}, Summary: "show a sandbox and its receipt",
			About: `Shows the settings of a sandbox, and its receipt: what the kernel enforces. The receipt lists each layer, the id map, and
each limit with its mechanism. For a layer that is not fully enforced it gives the reason, and a command that fixes it.
ID can be a name.`,
			Examples: []cmdline.Example{
				{Says: "show it as a table", Line: "demesne inspect build"},
				{Says: "show it as JSON", Line: "demesne inspect --json build"},
			},
			Operand: cmdline.Sandbox,
		},
		New: func(a *app.App) app.Options { return &inspectOptions{App: a} },
	}
}

type inspectOptions struct {
	*app.App
	json bool
}

func (o *inspectOptions) Flags() cmdline.Flags { return app.JSONFlag(&o.json) }

func (o *inspectOptions) Run(args []string) (int, error) {
	if len(args) != 1 {
		return 0, text.Hinted(errors.New("needs the name of one sandbox"), "demesne ls lists sandboxes")
	}
	return o.WithEngine(func(ctx context.Context, eng session.Engine) (int, error) {
		info, err := eng.Inspect(ctx, args[0])
		switch {
		case err != nil:
			return 0, err
		case o.json:
			return o.PrintJSON(info)
		}
		return o.Print(describe(info, cmdline.TerminalOf(o.Stdout, o.Env)))
	})
}

// describe returns the text output of inspect, for a terminal.
func describe(i *runner.Info, on cmdline.Terminal) string {
	rows := [][]string{{"sandbox", i.ID}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	if i.Name != i.ID {
		add("name", i.Name)
	}
	state := string(i.State)
	if i.State == runner.Running || i.State == runner.Paused {
		state += fmt.Sprintf(", pid %d, %d commands", i.PID, i.Execs)
	}
	if i.State == runner.Paused {
		state += "; paused (SIGSTOP) until the next command"
	}
	add("state", state)
	add("created", i.Created.Local().Format(time.DateTime))
	if !i.Expires.IsZero() {
		add("expires", i.Expires.Local().Format(time.DateTime))
	}
	add("frontend", i.Spec.Frontends())
	add("output", i.Out)
	add("workspace", cmp.Or(i.Spec.Workspace, "scratch"))
	for _, in := range i.Spec.Inputs {
		add("input", "/in/"+in.Name+" is "+in.Path)
	}
	for _, m := range i.Spec.Mounts {
		add("mount", m.Target+" is "+m.Source+map[bool]string{true: ", read-only"}[m.ReadOnly])
	}
	for _, t := range i.Spec.Tmpfs {
		size := t.Size
		if size == 0 {
			size = i.Spec.Limits.Disk
		}
		add("tmpfs", t.Target+map[bool]string{true: ", " + text.FormatBytes(size)}[size > 0])
	}
	for _, h := range i.Spec.Hosts {
		add("host", h.Name+" is "+h.Addr.String())
	}
	if e := i.Spec.Egress; e != nil {
		add("egress log", e.Log)
		for _, r := range e.Routes {
			add("route", r.String())
		}
	}
	for _, p := range i.Spec.Publish {
		add("published", fmt.Sprintf("%s is port %d inside", p.Listen, p.To))
	}
	if r := i.Result; r != nil {
		add("last command", fmt.Sprintf("exit code %d, %s %s", r.ExitCode, r.Reason, r.Detail))
	}
	rows, rest := describeReceipt(rows, i.Receipt, on)
	return app.Columns(rows) + rest
}

// describeReceipt adds the receipt's simple values to rows; it returns its tables as text.
func describeReceipt(rows [][]string, r *runner.Receipt, on cmdline.Terminal) ([][]string, string) {
	if r == nil {
		return rows, ""
	}
	rows = append(rows, []string{"image", r.Image})
	if r.ImageDigest != "" {
		rows = append(rows, []string{"image digest", r.ImageDigest})
	}
	rows = append(rows, [][]string{
		{"isolation", string(r.Level)}, {"kernel", r.Kernel}, {"network", r.Network},
		{"landlock ABI", fmt.Sprint(r.Landlock)}, {"seccomp filter", cmp.Or(r.Seccomp, "none")},
		{"user ids", ranges(r.UIDMap)}, {"group ids", ranges(r.GIDMap)},
	}...)
	var layers, limits []app.Finding
	for _, l := range r.Layers {
		layers = append(layers, app.Finding{Name: l.Name, Status: l.Status, Detail: l.Detail, Why: l.Why, Fix: l.Fix})
	}
	for _, l := range r.Limits {
		by := limitValue(l)
		if l.Mechanism != "" {
			by += ", by " + l.Mechanism
		}
		limits = append(limits, app.Finding{Name: l.Name, Status: l.Status, Detail: by, Why: l.Why, Fix: l.Fix})
	}
	return rows, "\nlayers\n" + app.Findings("  ", layers, on) + "\nlimits\n" + app.Findings("  ", limits, on)
}

// limitValue returns the value of a limit for reading. Memory and disk are in bytes.
func limitValue(l runner.LimitReceipt) string {
	n, err := strconv.ParseInt(l.Value, 10, 64)
	if err != nil || l.Name != "memory" && l.Name != "disk" {
		return l.Value
	}
	return text.FormatBytes(n)
}

// ranges formats an id map: "0 is 100000 (65536 of them)".
func ranges(m []runner.IDRange) string {
	if len(m) == 0 {
		return "not mapped"
	}
	var parts []string
	for _, r := range m {
		part := fmt.Sprintf("%d is %d", r.Inside, r.Host)
		if r.Size > 1 {
			part += fmt.Sprintf(" (%d of them)", r.Size)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}
