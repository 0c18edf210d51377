package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"demesne/cli/app"
	"demesne/cli/stream"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/session"
)

// Top returns demesne top.
func Top() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "top", Usage: []string{"[--interval DURATION]", "--once [--json]"}, Summary: "show what sandboxes use, as top(1) does",
			About: `Shows the live sandboxes of this user, whichever program made them: processor time, memory, processes and running
commands. The busiest comes first. Keys: q ends; c, m, p and a sort by processor, memory, processes and age.

Without a terminal, or with --once, it prints one table and ends. It then measures for --interval.`,
			Examples: []cmdline.Example{
				{Says: "watch the sandboxes", Line: "demesne top"},
				{Says: "print one table as JSON", Line: "demesne top --once --json"},
			},
		},
		New: func(a *app.App) app.Options { return &topOptions{App: a, interval: topInterval} },
	}
}

// The time between two measurements of top: the usual one, and the shortest.
const topInterval, topLeast = 2 * time.Second, 200 * time.Millisecond

type topOptions struct {
	*app.App
	interval   time.Duration
	once, json bool
}

func (o *topOptions) Flags() cmdline.Flags {
	return slices.Concat(cmdline.Flags{
		{Group: cmdline.GroupGeneral, Long: "interval", Arg: "DURATION", Set: o.setInterval, Help: "measure so often (default 2s)"},
		{Group: cmdline.GroupGeneral, Long: "once", Set: cmdline.On(&o.once), Help: "print one table and end"},
	}, app.JSONFlag(&o.json))
}

func (o *topOptions) setInterval(s string) error {
	err := cmdline.Duration(&o.interval)(s)
	if err == nil && o.interval < topLeast {
		err = fmt.Errorf("less than %s", topLeast)
	}
	return err
}

// topRow is a sandbox with what it uses.
type topRow struct {
	ID        string    `json:"id"`
	Name      string    `json:"name,omitempty"`
	Frontend  string    `json:"frontend"`
	Image     string    `json:"image,omitempty"`
	State     string    `json:"state"`
	Created   time.Time `json:"created"`
	CPUs      float64   `json:"cpus"` // processors in use since the last measurement
	CPU       float64   `json:"cpu_seconds"`
	Memory    int64     `json:"memory_bytes"`
	Limit     int64     `json:"memory_limit_bytes,omitempty"` // 0: none, or the default
	Processes int       `json:"processes"`
	Commands  int       `json:"commands"`
}

// topView measures sandboxes, and remembers the last measurement.
type topView struct {
	s      *session.Service
	before map[string]float64 // processor seconds
	at     time.Time
	key    byte // of the order
}

// topAtOnce is how many sandboxes are measured at the same time.
const topAtOnce = 8

// measure returns the live sandboxes with what they use.
func (v *topView) measure(ctx context.Context) (rows []topRow, err error) {
	var infos []runner.Info
	err = v.s.With(ctx, func(e session.Engine) error {
		if infos, err = e.List(ctx); err != nil {
			return err
		}
		infos = slices.DeleteFunc(infos, func(i runner.Info) bool { return i.State != runner.Running && i.State != runner.Paused })
		rows = usages(ctx, e, infos)
		return nil
	})
	if err != nil {
		return nil, err
	}
	now := time.Now()
	seen := map[string]float64{}
	for i := range rows {
		r := &rows[i]
		seen[r.ID] = r.CPU
		if was, ok := v.before[r.ID]; ok && r.CPU >= was {
			r.CPUs = math.Round(100*(r.CPU-was)/now.Sub(v.at).Seconds()) / 100
		}
	}
	v.before, v.at = seen, now
	v.sort(rows)
	return rows, nil
}

// usages measures sandboxes. One that ends meanwhile uses nothing.
func usages(ctx context.Context, e session.Engine, infos []runner.Info) []topRow {
	rows := make([]topRow, len(infos))
	var wg sync.WaitGroup
	free := make(chan bool, topAtOnce)
	for i, info := range infos {
		free <- true
		wg.Go(func() {
			u, _ := e.Usage(ctx, info.ID)
			rows[i] = topRow{
				ID: info.ID, Name: info.Name, Frontend: info.Spec.Frontends(), Image: info.Spec.Image, State: string(info.State), Created: info.Created,
				CPU: u.CPU, Memory: u.Memory, Limit: max(0, info.Spec.Limits.Memory), Processes: u.Processes, Commands: info.Execs,
			}
			<-free
		})
	}
	wg.Wait()
	return rows
}

// orders are the orders of the table, by their keys.
func orders() map[byte]func(a, b topRow) int {
	return map[byte]func(a, b topRow) int{
		'c': func(a, b topRow) int { return cmp.Compare(b.CPUs, a.CPUs) },
		'm': func(a, b topRow) int { return cmp.Compare(b.Memory, a.Memory) },
		'p': func(a, b topRow) int { return cmp.Compare(b.Processes, a.Processes) },
		'a': func(a, b topRow) int { return a.Created.Compare(b.Created) },
	}
}

func (v *topView) sort(rows []topRow) {
	order := orders()[v.key]
	slices.SortStableFunc(rows, func(a, b topRow) int {
		return cmp.Or(order(a, b), cmp.Compare(b.Memory, a.Memory), cmp.Compare(a.ID, b.ID))
	})
}

func (o *topOptions) Run(args []string) (int, error) {
	if len(args) > 0 {
		return 0, fmt.Errorf("unexpected argument %q", args[0])
	}
	if o.json && !o.once {
		return 0, errors.New("--json: needs --once")
	}
	out := cmdline.TerminalOf(o.Stdout, o.Env)
	return o.WithSession(func(ctx context.Context, s *session.Service) (int, error) {
		v := &topView{s: s, key: 'c'}
		if o.once || !out.Redraw || !stream.IsTerminal(o.Stdin) {
			return o.printOnce(ctx, v)
		}
		return o.live(v)
	})
}

// printOnce measures twice, because the use of processors is a difference.
func (o *topOptions) printOnce(ctx context.Context, v *topView) (int, error) {
	if _, err := v.measure(ctx); err != nil {
		return 0, err
	}
	if len(v.before) > 0 {
		time.Sleep(min(o.interval, time.Second))
	}
	rows, err := v.measure(ctx)
	switch {
	case err != nil:
		return 0, err
	case o.json:
		return o.PrintJSON(append([]topRow{}, rows...))
	}
	return o.Print(app.Columns(topTable(rows, time.Now())))
}

func topTable(rows []topRow, now time.Time) [][]string {
	table := [][]string{{"ID", "NAME", "FRONTEND", "STATE", "CPU", "CPU TIME", "MEMORY", "PROCESSES", "COMMANDS", "AGE", "IMAGE"}}
	for _, r := range rows {
		table = append(table, []string{
			r.ID, cmp.Or(r.Name, "-"), r.Frontend, r.State, fmt.Sprintf("%.0f%%", 100*r.CPUs), fmt.Sprintf("%.1fs", r.CPU), text.FormatBytes(r.Memory),
			fmt.Sprint(r.Processes), fmt.Sprint(r.Commands), app.Span(now.Sub(r.Created)), cmp.Or(r.Image, "-"),
		})
	}
	return table
}

// topSpared are the columns that a narrow screen lacks, the first of them first.
var topSpared = []string{"IMAGE", "FRONTEND", "CPU TIME", "COMMANDS", "STATE", "AGE", "ID", "PROCESSES"}

// topNarrow returns a table that has room in limit columns of a screen if possible. A name has a third of them.
func topNarrow(table [][]string, limit int) string {
	for _, r := range table[1:] {
		if name := []rune(text.SafeLine(r[1])); len(name) > limit/3 {
			r[1] = string(name[:max(1, limit/3-1)]) + "…"
		}
	}
	drawn := app.Columns(table)
	for _, spared := range topSpared {
		if widest(drawn) <= limit {
			break
		}
		at := slices.Index(table[0], spared)
		for i := range table {
			table[i] = slices.Delete(table[i], at, at+1)
		}
		drawn = app.Columns(table)
	}
	return drawn
}

func widest(lines string) (n int) {
	for line := range strings.Lines(lines) {
		n = max(n, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
	}
	return n
}

// Control sequences of the terminal: another screen without a cursor, and back; the first place; the rest of a line and
// of the screen erased; inverse text.
const (
	screenOpen  = "\x1b[?1049h\x1b[?25l"
	screenClose = "\x1b[?25h\x1b[?1049l"
	screenHome  = "\x1b[H"
	eraseLine   = "\x1b[K"
	eraseBelow  = "\x1b[J"
	inverse     = "\x1b[7m"
	upright     = "\x1b[0m"
)

// live draws the table until a key or a signal ends it.
func (o *topOptions) live(v *topView) (int, error) {
	t := o.OpenTerminal()
	sig := stream.WatchSignals(o.Quit, t)
	if err := t.MakeRaw(); err != nil {
		return 0, err
	}
	defer t.Restore()
	if _, err := o.Print(screenOpen); err != nil {
		return 0, err
	}
	defer o.Print(screenClose)
	keys := make(chan byte)
	go typed(o.Stdin, keys, sig.Ctx.Done())
	for {
		rows, err := v.measure(sig.Ctx)
		if sig.Ctx.Err() != nil {
			return sig.GaveUp(), nil
		}
		if err != nil {
			return 0, err
		}
		if _, err := o.Print(v.frame(rows, t.Size(), time.Now())); err != nil {
			return 0, err
		}
		select {
		case <-sig.Ctx.Done():
			return sig.GaveUp(), nil
		case <-time.After(o.interval):
		case k, ok := <-keys:
			if !ok || k == 'q' || k == 'Q' || k == interrupt || k == escape {
				return 0, nil
			}
			if orders()[k] != nil {
				v.key = k
			}
		}
	}
}

// Keys of a terminal that is raw.
const interrupt, escape = 3, 27

// typed passes keys on until done is closed.
func typed(from *os.File, to chan<- byte, done <-chan struct{}) {
	defer close(to)
	var b [16]byte
	for {
		n, err := from.Read(b[:])
		if err != nil || n == 0 {
			return
		}
		if n > 1 && b[0] == escape { // an arrow key
			continue
		}
		select {
		case to <- b[0]:
		case <-done:
			return
		}
	}
}

// frame returns what draws one measurement on a screen of a size.
func (v *topView) frame(rows []topRow, size runner.Winsize, now time.Time) string {
	var cpus float64
	var memory int64
	processes := 0
	for _, r := range rows {
		cpus, memory, processes = cpus+r.CPUs, memory+r.Memory, processes+r.Processes
	}
	lines := []string{
		fmt.Sprintf("demesne top  %s  %d sandboxes, %.0f%% CPU, %s, %d processes", now.Format("15:04:05"), len(rows), 100*cpus, text.FormatBytes(memory), processes),
		"sort: c CPU, m memory, p processes, a age; q ends", "",
	}
	for i, line := range strings.Split(strings.TrimSuffix(topNarrow(topTable(rows, now), int(size.Cols)), "\n"), "\n") {
		if line = clipped(line, int(size.Cols)); i == 0 {
			line = inverse + line + strings.Repeat(" ", max(0, int(size.Cols)-len([]rune(line)))) + upright
		}
		lines = append(lines, line)
	}
	lines = lines[:min(len(lines), int(size.Rows))]
	for i := range lines[:min(3, len(lines))] {
		lines[i] = clipped(lines[i], int(size.Cols))
	}
	return screenHome + strings.Join(lines, eraseLine+"\r\n") + eraseLine + eraseBelow
}

func clipped(s string, limit int) string {
	if r := []rune(s); len(r) > limit {
		return string(r[:limit])
	}
	return s
}
