package machine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/session/audit"
	"demesne/session/events"
)

type auditOptions struct {
	*app.App
	since     time.Duration
	kind      string // of events
	sandbox   string
	namespace *string
	limit     int64
	marks     map[uint64]string
	json      bool
}

// Audit returns demesne audit.
func Audit() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "audit", Usage: []string{"list [--since DURATION] [--type TYPE] [--sandbox ID] [--namespace NS] [--limit N] [--json]", "verify [--mark ID:SHA256] [--json]"},
			Summary: "show what callers of demesne serve did",
			About: `list shows the audit log of demesne serve, the newest entries last: sandboxes, commands, network decisions, used secrets,
reached limits. A type such as execution stands for all that begin with it. Texts that come from sandboxes are escaped.

verify checks the chain of the entries, and exits 1 if an entry was changed, removed or inserted. It prints the number and
the hash of the last entry. With --mark it also checks that this entry is still the one that was printed then: keep such
a line where the user of the server cannot write.`,
			Examples: []cmdline.Example{
				{Says: "show what happened in the last hour", Line: "demesne audit list --since 1h"},
				{Says: "show what one sandbox was denied", Line: "demesne audit list --type egress.denied --sandbox 652616173782"},
				{Says: "check the log", Line: "demesne audit verify"},
			},
			Words: []string{"list", "verify"},
		},
		New: func(a *app.App) app.Options { return &auditOptions{App: a, limit: auditShown} },
	}
}

// auditShown is the number of entries that list shows, unless --limit says otherwise.
const auditShown = 50

func (o *auditOptions) Flags() cmdline.Flags {
	return slices.Concat(cmdline.Flags{
		{Group: cmdline.GroupGeneral, Long: "since", Arg: "DURATION", Set: cmdline.Duration(&o.since), Help: "entries of the last DURATION"},
		{Group: cmdline.GroupGeneral, Long: "type", Arg: "TYPE", Set: cmdline.Text(&o.kind), Help: "entries of this type, or of types that begin with TYPE and a dot"},
		{Group: cmdline.GroupGeneral, Long: "sandbox", Arg: "ID", Set: cmdline.Text(&o.sandbox), Help: "entries of this sandbox"},
		{Group: cmdline.GroupGeneral, Long: "namespace", Arg: "NS", Set: func(s string) error { o.namespace = &s; return nil }, Help: "entries of this namespace"},
		{Group: cmdline.GroupGeneral, Long: "limit", Arg: "N", Set: o.setLimit, Help: "show the last N entries, 0 for all (default " + strconv.Itoa(auditShown) + ")"},
		{Group: cmdline.GroupGeneral, Long: "mark", Arg: "ID:SHA256", Repeat: true, Set: o.setMark, Help: "with verify: an entry and its hash, as an earlier verify printed them"},
	}, app.JSONFlag(&o.json))
}

func (o *auditOptions) setLimit(s string) (err error) {
	if o.limit, err = strconv.ParseInt(s, 10, 32); err != nil || o.limit < 0 {
		return errors.New("not a number")
	}
	return nil
}

func (o *auditOptions) setMark(s string) error {
	id, sum, _ := strings.Cut(s, ":")
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil || len(sum) != 64 || strings.Trim(sum, "0123456789abcdef") != "" {
		return errors.New("not ID:SHA256")
	}
	if o.marks == nil {
		o.marks = map[uint64]string{}
	}
	o.marks[n] = sum
	return nil
}

func (o *auditOptions) Run(args []string) (int, error) {
	if len(args) == 0 {
		return 0, text.Hinted(errors.New("needs a verb"), "demesne audit list | verify")
	}
	if len(args) > 1 {
		return 0, fmt.Errorf("unexpected argument %q", args[1])
	}
	dir, err := audit.DefaultDir()
	if err != nil {
		return 0, err
	}
	switch args[0] {
	case "list":
		return o.list(dir)
	case "verify":
		return o.verify(dir)
	}
	return 0, fmt.Errorf("%q: %w", args[0], cmdline.OneOf(args[0], []string{"list", "verify"}))
}

func (o *auditOptions) list(dir string) (int, error) {
	if o.marks != nil {
		return 0, errors.New("--mark is for verify, not for list")
	}
	f := audit.Filter{Type: events.Type(o.kind), Sandbox: o.sandbox, Namespace: o.namespace}
	if o.since > 0 {
		f.Since = time.Now().Add(-o.since)
	}
	all := []audit.Entry{}
	limit := int(o.limit)
	err := audit.Read(context.Background(), dir, f, func(e audit.Entry) bool {
		if all = append(all, e); limit > 0 && len(all) > 2*limit {
			all = slices.Clone(all[len(all)-limit:])
		}
		return true
	})
	if err != nil {
		return 0, err
	}
	if limit > 0 {
		all = all[max(0, len(all)-limit):]
	}
	if o.json {
		return o.printEntries(all)
	}
	return o.Print(auditTable(all))
}

// printEntries prints each entry as one line of JSON.
func (o *auditOptions) printEntries(all []audit.Entry) (int, error) {
	var b strings.Builder
	for _, e := range all {
		line, err := json.Marshal(e)
		if err != nil {
			return 0, err
		}
		b.Write(append(line, '\n'))
	}
	return o.Print(b.String())
}

func auditTable(all []audit.Entry) string {
	rows := [][]string{{"ID", "TIME", "TYPE", "CALLER", "NAMESPACE", "SANDBOX", "DETAIL"}}
	for _, e := range all {
		rows = append(rows, []string{
			strconv.FormatUint(e.ID, 10), e.Time.Local().Format("2006-01-02 15:04:05"), string(e.Type), cmp.Or(e.Caller, "-"), cmp.Or(e.Namespace, "-"), cmp.Or(e.Sandbox, "-"),
			detailText(e.Detail),
		})
	}
	return app.Columns(rows)
}

// detailText returns details as NAME=VALUE, with quotes around values that have spaces.
func detailText(all map[string]string) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		v := all[name]
		if strings.ContainsAny(v, " \t\"") {
			v = `"` + strings.ReplaceAll(v, `"`, `\"`) + `"` // columns escapes the rest
		}
		words = append(words, name+"="+v)
	}
	return strings.Join(words, " ")
}

func (o *auditOptions) verify(dir string) (int, error) {
	if o.since != 0 || o.kind != "" || o.sandbox != "" || o.namespace != nil || o.limit != auditShown {
		return 0, errors.New("--since, --type, --sandbox, --namespace and --limit are for list, not for verify")
	}
	r, err := audit.Verify(context.Background(), dir, o.marks)
	if err != nil {
		return 0, err
	}
	code := 0
	if len(r.Wrong) > 0 {
		code = 1
	}
	if o.json {
		_, err = o.PrintJSON(r)
		return code, err
	}
	for _, line := range r.Wrong {
		o.Say("audit: " + line)
	}
	switch {
	case code != 0:
		return code, nil
	case r.Entries == 0:
		return o.Print("no entries\n")
	}
	return o.Print(fmt.Sprintf("entries %d to %d are unchanged\nlast: %d:%s\n", r.First, r.Last, r.Last, r.Sum))
}
