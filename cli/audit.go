package cli

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
	"demesne/internal/fsutil"
	"demesne/session/audit"
	"demesne/session/events"
)

// operatorOptions are the options of audit and top.
type operatorOptions struct {
	auditSince     time.Duration
	auditType      string
	auditSandbox   string
	auditNamespace *string
	auditLimit     int64
	auditMarks     map[uint64]string
	interval       time.Duration
	once           bool
}

func auditCommand() app.Verb {
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
		New: shared(auditFlags, cmdAudit),
	}
}

// auditShown is the number of entries that list shows, unless --limit says otherwise.
const auditShown = 50

func auditFlags(o *options) cmdline.Flags {
	a := &o.operatorOptions
	a.auditLimit = auditShown
	return slices.Concat(cmdline.Flags{
		{Group: cmdline.GroupGeneral, Long: "since", Arg: "DURATION", Set: cmdline.Duration(&a.auditSince), Help: "entries of the last DURATION"},
		{Group: cmdline.GroupGeneral, Long: "type", Arg: "TYPE", Set: cmdline.Text(&a.auditType), Help: "entries of this type, or of types that begin with TYPE and a dot"},
		{Group: cmdline.GroupGeneral, Long: "sandbox", Arg: "ID", Set: cmdline.Text(&a.auditSandbox), Help: "entries of this sandbox"},
		{Group: cmdline.GroupGeneral, Long: "namespace", Arg: "NS", Set: func(s string) error { a.auditNamespace = &s; return nil }, Help: "entries of this namespace"},
		{Group: cmdline.GroupGeneral, Long: "limit", Arg: "N", Set: a.setLimit, Help: "show the last N entries, 0 for all (default " + strconv.Itoa(auditShown) + ")"},
		{Group: cmdline.GroupGeneral, Long: "mark", Arg: "ID:SHA256", Repeat: true, Set: a.setMark, Help: "with verify: an entry and its hash, as an earlier verify printed them"},
	}, app.JSONFlag(&o.json))
}

func (o *operatorOptions) setLimit(s string) (err error) {
	if o.auditLimit, err = strconv.ParseInt(s, 10, 32); err != nil || o.auditLimit < 0 {
		return errors.New("not a number")
	}
	return nil
}

func (o *operatorOptions) setMark(s string) error {
	id, sum, _ := strings.Cut(s, ":")
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil || len(sum) != 64 || strings.Trim(sum, "0123456789abcdef") != "" {
		return errors.New("not ID:SHA256")
	}
	if o.auditMarks == nil {
		o.auditMarks = map[uint64]string{}
	}
	o.auditMarks[n] = sum
	return nil
}

func cmdAudit(a *app.App, o *options, args []string) (int, error) {
	if len(args) == 0 {
		return 0, app.Hinted(errors.New("needs a verb"), "demesne audit list | verify")
	}
	if len(args) > 1 {
		return 0, fmt.Errorf("unexpected argument %q", args[1])
	}
	dir, err := fsutil.StateDir("audit")
	if err != nil {
		return 0, fmt.Errorf("find audit log: %w", err)
	}
	switch args[0] {
	case "list":
		return listAudit(a, dir, o)
	case "verify":
		return verifyAudit(a, dir, o)
	}
	return 0, fmt.Errorf("%q: %w", args[0], cmdline.OneOf(args[0], []string{"list", "verify"}))
}

func listAudit(a *app.App, dir string, o *options) (int, error) {
	if o.auditMarks != nil {
		return 0, errors.New("--mark is for verify, not for list")
	}
	f := audit.Filter{Type: events.Type(o.auditType), Sandbox: o.auditSandbox, Namespace: o.auditNamespace}
	if o.auditSince > 0 {
		f.Since = time.Now().Add(-o.auditSince)
	}
	all := []audit.Entry{}
	most := int(o.auditLimit)
	err := audit.Read(context.Background(), dir, f, func(e audit.Entry) bool {
		if all = append(all, e); most > 0 && len(all) > 2*most {
			all = slices.Clone(all[len(all)-most:])
		}
		return true
	})
	if err != nil {
		return 0, err
	}
	if most > 0 {
		all = all[max(0, len(all)-most):]
	}
	if o.json {
		return printEntries(a, all)
	}
	return a.Print(auditTable(all))
}

// printEntries prints each entry as one line of JSON.
func printEntries(a *app.App, all []audit.Entry) (int, error) {
	var b strings.Builder
	for _, e := range all {
		line, err := json.Marshal(e)
		if err != nil {
			return 0, err
		}
		b.Write(append(line, '\n'))
	}
	return a.Print(b.String())
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

func verifyAudit(a *app.App, dir string, o *options) (int, error) {
	if o.auditSince != 0 || o.auditType != "" || o.auditSandbox != "" || o.auditNamespace != nil || o.auditLimit != auditShown {
		return 0, errors.New("--since, --type, --sandbox, --namespace and --limit are for list, not for verify")
	}
	r, err := audit.Verify(context.Background(), dir, o.auditMarks)
	if err != nil {
		return 0, err
	}
	code := 0
	if len(r.Wrong) > 0 {
		code = 1
	}
	if o.json {
		_, err = a.PrintJSON(r)
		return code, err
	}
	for _, line := range r.Wrong {
		a.Say("audit: " + line)
	}
	switch {
	case code != 0:
		return code, nil
	case r.Entries == 0:
		return a.Print("no entries\n")
	}
	return a.Print(fmt.Sprintf("entries %d to %d are unchanged\nlast: %d:%s\n", r.First, r.Last, r.Last, r.Sum))
}
