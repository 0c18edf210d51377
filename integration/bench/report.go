package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"text/tabwriter"
	"time"
)

// inits reports the time that each program spends in package initializers before main.
func inits(m *machine) {
	line := regexp.MustCompile(`(?m)^init (\S+) @\S+ ms, (\S+) ms clock`)
	for _, p := range []string{"demesne", "demesne-runner", "demesne-init", "demesne-images", "demesne-frontend", "demesne-proxy"} {
		cmd := m.command(p, "--version")
		var errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &errs, &errs
		cmd.Env = append(cmd.Env, "GODEBUG=inittrace=1")
		check(cmd.Start())
		kill := time.AfterFunc(5*time.Second, func() { cmd.Process.Kill() })
		cmd.Wait()
		kill.Stop()
		total, worst, name := 0.0, 0.0, ""
		for _, f := range line.FindAllSubmatch(errs.Bytes(), -1) {
			v, _ := strconv.ParseFloat(string(f[2]), 64)
			if total += v; v > worst {
				worst, name = v, string(f[1])
			}
		}
		m.rows = append(m.rows, row{Name: "package init of " + p, Median: time.Duration(total * 1e6),
			Note: fmt.Sprintf("most of it %s, %.2f ms", name, worst)})
	}
}

// report prints all rows and bounds, and fails if a bound is exceeded.
func (m *machine) report() error {
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	peers := map[string]time.Duration{}
	for _, r := range m.rows {
		peers[r.Name] = r.Median
	}
	fmt.Fprintln(w, "case\tmedian\tp99\tx bwrap\tx runc\t")
	for _, r := range m.rows {
		p99 := ""
		if r.P99 > 0 {
			p99 = ms(r.P99)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, ms(r.Median), p99, times(r, peers["bwrap"]), times(r, peers["runc run"]), r.Note)
	}
	fmt.Fprintln(w, "\nbound\twanted\tgot\t\t\t")
	over := 0
	for _, b := range m.bounds {
		if !b.OK {
			over++
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t\t\n", b.Name, b.Want, b.Got, b.verdict())
	}
	w.Flush()
	fmt.Print(m.table.String())
	if over > 0 {
		return fmt.Errorf("%d of %d bounds over", over, len(m.bounds))
	}
	return nil
}

func (b bound) verdict() string {
	if b.OK {
		return "ok"
	}
	return "OVER"
}

func times(r row, peer time.Duration) string {
	if peer == 0 || r.P99 == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", float64(r.Median)/float64(peer))
}
