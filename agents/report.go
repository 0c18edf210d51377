package agents

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/session"
)

// Bounds of what ReadReport reads.
const (
	maxReportNodes = 4096
	maxReportDepth = 64
	maxReportFile  = 64 << 20
	maxSubagents   = 256
	longestRecord  = 64 << 10 // a line of usage.jsonl or attribution.jsonl
	childrenDir    = "child"
)

// ReadReport reports what an agent and its children used. dir is the directory of the agent's job, or its /out. The
// host's own files in sidecar-results precede those in out, where a sandbox may have written. Each of these has the files of
// the agent and, in child/NAME, of each child. A child without a directory is known from results.json. A job that runs has a
// report as well. extra are rows for the table of prices.
//
// A sandbox may have written all of it. ReadReport follows no link, bounds sizes and depth, and ignores other content.
func ReadReport(dir *os.Root, extra ...Price) (*UsageReport, error) {
	node, err := reportRoot(dir)
	if err != nil {
		return nil, err
	}
	if node != dir {
		defer node.Close()
	}
	r := &reader{extra: extra, models: map[string]session.Tokens{}, subagents: map[string]*SubagentUsage{}}
	r.node(node, "", 0)
	return r.report(), nil
}

// reportRoot returns the first directory that has files of usage.
func reportRoot(dir *os.Root) (*os.Root, error) {
	for _, name := range []string{"sidecar-results", "out"} {
		sub, err := fsutil.OpenDir(dir, name)
		if err != nil {
			continue
		}
		if hasUsage(sub) {
			return sub, nil
		}
		sub.Close()
	}
	if hasUsage(dir) {
		return dir, nil
	}
	return nil, errors.New("no usage is recorded there")
}

func hasUsage(dir *os.Root) bool {
	return slices.ContainsFunc([]string{"usage.jsonl", "usage.json", resultsName}, func(name string) bool {
		_, err := dir.Lstat(name)
		return err == nil
	})
}

// A reader sums a tree of agents.
type reader struct {
	extra     []Price
	models    map[string]session.Tokens
	children  []ChildUsage
	subagents map[string]*SubagentUsage
	dropped   DroppedUsage
	nodes     int
}

// node adds an agent and its children.
func (r *reader) node(dir *os.Root, name string, depth int) {
	if r.nodes++; r.nodes > maxReportNodes || depth > maxReportDepth {
		return
	}
	r.add(name, depth, r.own(dir))
	seen := map[string]bool{}
	if list, err := fsutil.OpenDir(dir, childrenDir); err == nil {
		for _, name := range names(list) {
			if child, err := fsutil.OpenDir(list, name); err == nil {
				if hasUsage(child) {
					seen[name] = true
					r.node(child, name, depth+1)
				}
				child.Close()
			}
		}
		list.Close()
	}
	var results Results
	if readJSON(dir, resultsName, &results) {
		for _, c := range results.Children {
			if !seen[c.Name] && len(c.PerModel) > 0 { // a child that runs a script uses no model
				r.stated(c, depth+1)
			}
		}
	}
}

// stated adds a child that only results.json describes.
func (r *reader) stated(c Results, depth int) {
	if r.nodes++; r.nodes > maxReportNodes || depth > maxReportDepth {
		return
	}
	own := map[string]session.Tokens{}
	for model, t := range c.PerModel {
		for _, below := range c.Children {
			b := below.PerModel[model]
			t = plus(t, session.Tokens{Input: -b.Input, Output: -b.Output, CacheCreation: -b.CacheCreation, CacheRead: -b.CacheRead})
		}
		own[model] = sanitized(t)
	}
	r.add(c.Name, depth, own)
	for _, below := range c.Children {
		if len(below.PerModel) > 0 {
			r.stated(below, depth+1)
		}
	}
}

// add adds what one agent itself used. Sums do not tell how long each prompt was, so costs here have no [surcharge].
func (r *reader) add(name string, depth int, own map[string]session.Tokens) {
	child := ChildUsage{Name: brief(name), Depth: depth}
	for model, t := range own {
		if _, known := r.models[model]; !known && len(r.models) >= maxModels {
			model = otherModels
		}
		r.models[model] = plus(r.models[model], t)
		child.Tokens = plus(child.Tokens, t)
		child.Cost = dollars(child.Cost + priceOf(model, r.extra).cost(t))
	}
	if depth > 0 {
		r.children = append(r.children, child)
	}
}

// own reads what the agent of one directory used, by model.
func (r *reader) own(dir *os.Root) map[string]session.Tokens {
	var who attributions
	readLines(dir, "attribution.jsonl", func(line []byte) {
		var a attribution
		if decode(line, &a) {
			who.add(a)
		}
	})
	own := map[string]session.Tokens{}
	readLines(dir, "usage.jsonl", func(line []byte) {
		var l usageLine
		if !decode(line, &l) || l.Model == "" {
			return
		}
		l.Model, l.Tokens = brief(l.Model), sanitized(l.Tokens)
		if _, known := own[l.Model]; !known && len(own) >= maxModels {
			l.Model = otherModels
		}
		own[l.Model] = plus(own[l.Model], l.Tokens)
		r.subagent(who.by[brief(l.RequestID)].name(), l)
	})
	r.summary(dir, own)
	return own
}

// summary reads usage.json: what was dropped and, for a job without usage.jsonl, the sums.
func (r *reader) summary(dir *os.Root, own map[string]session.Tokens) {
	var f usageFile
	if !readJSON(dir, "usage.json", &f) {
		return
	}
	if f.Dropped != nil {
		r.dropped.ParseErrors += f.Dropped.ParseErrors
		r.dropped.NoUsageBlock += f.Dropped.NoUsageBlock
	}
	if len(own) > 0 {
		return
	}
	for model, u := range f.PerModel {
		if len(own) < maxModels {
			own[brief(model)] = u.tokens()
		}
	}
}

func (u *usageModel) tokens() session.Tokens {
	count := func(n *int64) int64 {
		if n == nil {
			return 0
		}
		return *n
	}
	return sanitized(session.Tokens{
		Input: u.Input, Output: u.Output, CacheCreation: count(u.CacheCreation), CacheRead: count(u.CacheRead) + count(u.Cached),
	})
}

func (r *reader) subagent(name string, l usageLine) {
	if name == "" {
		return
	}
	s := r.subagents[name]
	if s == nil && len(r.subagents) >= maxSubagents {
		return
	} else if s == nil {
		s = &SubagentUsage{Name: name}
		r.subagents[name] = s
	}
	s.Tokens = plus(s.Tokens, l.Tokens)
	s.Cost = dollars(s.Cost + priceOf(l.Model, r.extra).cost(l.Tokens))
	s.Requests++
}

// report returns the sums. The largest costs are first; children are in the order of the tree.
func (r *reader) report() *UsageReport {
	out := &UsageReport{ByChild: r.children, Dropped: r.dropped}
	for model, t := range r.models {
		cost := priceOf(model, r.extra).cost(t)
		out.ByModel = append(out.ByModel, ModelUsage{Model: model, Tokens: t, Cost: cost})
		out.Totals, out.TotalCost = plus(out.Totals, t), dollars(out.TotalCost+cost)
	}
	slices.SortFunc(out.ByModel, func(a, b ModelUsage) int {
		return cmp.Or(cmp.Compare(b.Cost, a.Cost), strings.Compare(a.Model, b.Model))
	})
	for _, s := range r.subagents {
		out.BySubagent = append(out.BySubagent, *s)
	}
	slices.SortFunc(out.BySubagent, func(a, b SubagentUsage) int {
		return cmp.Or(cmp.Compare(b.Cost, a.Cost), strings.Compare(a.Name, b.Name))
	})
	if all := out.Totals.Input + out.Totals.CacheCreation + out.Totals.CacheRead; all > 0 {
		out.CacheRead = math.Round(1e4*float64(out.Totals.CacheRead)/float64(all)) / 100
	}
	return out
}

func sanitized(t session.Tokens) session.Tokens {
	return session.Tokens{Input: sane(t.Input), Output: sane(t.Output), CacheCreation: sane(t.CacheCreation), CacheRead: sane(t.CacheRead)}
}

// names returns the names in a directory, sorted, and not more than a report has agents.
func names(dir *os.Root) []string {
	f, err := dir.Open(".")
	if err != nil {
		return nil
	}
	defer f.Close()
	all, _ := f.Readdirnames(maxReportNodes)
	slices.Sort(all)
	return all
}

// readLines calls f with the lines of a file. A file that cannot be read has none.
func readLines(dir *os.Root, name string, f func(line []byte)) {
	if src, err := fsutil.OpenRegular(dir, name); err == nil {
		defer src.Close()
		eachLine(io.LimitReader(src, maxReportFile), longestRecord, f)
	}
}

// readJSON reads a small file into v, and reports whether it could.
func readJSON(dir *os.Root, name string, v any) bool {
	src, err := fsutil.OpenRegular(dir, name)
	if err != nil {
		return false
	}
	defer src.Close()
	return json.NewDecoder(io.LimitReader(src, maxReportFile/16)).Decode(v) == nil
}

// ReportText returns a report as tables, for a person and for a client that reads text.
func ReportText(r *UsageReport) string {
	var b strings.Builder
	fmt.Fprintf(&b, "total_cost_usd: %.4f\n", r.TotalCost)
	fmt.Fprintf(&b, "input: %d\noutput: %d\ncache_creation: %d\ncache_read: %d\n", r.Totals.Input, r.Totals.Output, r.Totals.CacheCreation, r.Totals.CacheRead)
	fmt.Fprintf(&b, "cache_read_pct: %.2f\n", r.CacheRead)
	writeTable(&b, "by_model", "model", len(r.ByModel), func(i int) []any {
		m := r.ByModel[i]
		return row(text.SafeLine(m.Model), m.Cost, m.Tokens)
	})
	writeTable(&b, "by_child", "name\tdepth", len(r.ByChild), func(i int) []any {
		c := r.ByChild[i]
		return row(fmt.Sprintf("%s%s\t%d", strings.Repeat("  ", max(min(c.Depth, maxReportDepth)-1, 0)), text.SafeLine(c.Name), c.Depth), c.Cost, c.Tokens)
	})
	writeTable(&b, "by_subagent", "name\trequests", len(r.BySubagent), func(i int) []any {
		s := r.BySubagent[i]
		return row(fmt.Sprintf("%s\t%d", text.SafeLine(s.Name), s.Requests), s.Cost, s.Tokens)
	})
	if r.Dropped != (DroppedUsage{}) {
		fmt.Fprintf(&b, "\ndropped: parse_errors %d, no_usage_block %d\n", r.Dropped.ParseErrors, r.Dropped.NoUsageBlock)
	}
	return b.String()
}

func row(first string, cost float64, t session.Tokens) []any {
	return []any{first, cost, t.Input, t.Output, t.CacheCreation, t.CacheRead}
}

// writeTable writes the rows of one list, if it has any.
func writeTable(b *strings.Builder, title, first string, n int, at func(int) []any) {
	if n == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", title)
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\tcost_usd\tinput\toutput\tcache_creation\tcache_read\n", first)
	for i := range n {
		fmt.Fprintf(w, "%s\t%.4f\t%d\t%d\t%d\t%d\n", at(i)...)
	}
	w.Flush()
}
