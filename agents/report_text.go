package agents

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"demesne/internal/text"
	"demesne/session"
)

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
