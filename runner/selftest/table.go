package selftest

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// table prints a row for each probe, and a column for each target.
func table(all []report, out io.Writer) error {
	rows := first(all)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if rows != nil {
		fmt.Fprint(w, "CASE\tATTACK")
		for _, r := range all {
			fmt.Fprint(w, "\t"+strings.ToUpper(r.Target))
		}
		fmt.Fprintln(w)
	}
	for i, o := range rows {
		fmt.Fprint(w, o.Case+"\t"+o.Title)
		for _, r := range all {
			cell := "-"
			if i < len(r.Outcomes) {
				cell = string(r.Outcomes[i].Verdict)
				if len(all) == 1 {
					cell += "\t" + r.Outcomes[i].Why
				}
			}
			fmt.Fprint(w, "\t"+cell)
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range all {
		if len(r.Outcomes) > 0 {
			fmt.Fprintf(out, "%s: %d contained, %d not contained, %d not applicable\n", r.Target, r.count(contained), r.count(escaped), r.count(notApplicable))
		}
		if r.Error != "" {
			fmt.Fprintf(out, "%s: %s\n", r.Target, r.Error)
		}
	}
	return nil
}

// markdown prints the table of docs/reference/selftest.md.
func markdown(all []report, out io.Writer) error {
	var b strings.Builder
	row := func(id, title string, cell func(report) string) {
		fmt.Fprintf(&b, "| %s | %s |", id, title)
		for _, r := range all {
			b.WriteString(" " + cell(r) + " |")
		}
		b.WriteByte('\n')
	}
	row("case", "attack", func(r report) string { return r.Target })
	b.WriteString("|---|---|" + strings.Repeat("---|", len(all)) + "\n")
	for _, v := range []verdict{contained, escaped, notApplicable} {
		row("", string(v), func(r report) string { return fmt.Sprint(r.count(v)) })
	}
	shown := map[verdict]string{contained: string(contained), escaped: "**" + string(escaped) + "**", notApplicable: "–"}
	for i, o := range first(all) {
		row(o.Case, o.Title, func(r report) string {
			if i >= len(r.Outcomes) {
				return "untried"
			}
			return shown[r.Outcomes[i].Verdict]
		})
	}
	for _, r := range all {
		if r.Error != "" {
			fmt.Fprintf(&b, "\n%s: %s\n", r.Target, r.Error)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (r report) count(v verdict) (n int) {
	for _, o := range r.Outcomes {
		if o.Verdict == v {
			n++
		}
	}
	return n
}

// first returns the outcomes of the first target whose probes ran.
func first(all []report) []outcome {
	for _, r := range all {
		if len(r.Outcomes) > 0 {
			return r.Outcomes
		}
	}
	return nil
}
