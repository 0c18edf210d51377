// Command soak uses demesne for a time, and writes what its processes take into a CSV. make soak calls it.
//
// It copies the programs to a directory of its own, starts demesne serve there, and repeats one round of work until the time is
// over: a command in a sandbox of its own, a persistent sandbox with commands and files over HTTP, a run with a network and a
// denied name, a background job, a fork, a failing command. Every few seconds it reads /proc: memory as PSS, descriptors and
// processes of the server and of runners, the disk that the state takes, and the median latencies since the last reading.
//
// make docs draws docs/pictures/soak.csv. The program ends with an error if work failed, or if the last quarter clearly has
// more memory, descriptors or processes than the second quarter.
package main

import (
	"encoding/csv"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	bin := flag.String("bin", "bin", "directory of the programs")
	length := flag.Duration("for", time.Hour, "how long")
	out := flag.String("out", "docs/pictures/soak.csv", "file to write")
	flag.Parse()
	if err := soak(*bin, *out, *length); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// maxRows bounds the rows of the file, whatever the time is.
const maxRows = 240

func soak(bin, out string, length time.Duration) error {
	w, err := newWorker(bin)
	if err != nil {
		return err
	}
	defer w.end()
	var rows []sample
	begin := time.Now()
	every := max(2*time.Second, length/maxRows)
	for next := begin; time.Since(begin) < length; {
		w.round()
		if time.Now().After(next) {
			s, err := w.sample(time.Since(begin))
			if err != nil {
				return err
			}
			rows = append(rows, s)
			fmt.Println(strings.Join(s.fields(), " "))
			next = time.Now().Add(every)
		}
	}
	if err := write(out, length, rows); err != nil {
		return err
	}
	fmt.Printf("soak: %d rounds, %d operations, %d failed in %v\n", w.rounds, w.operations, w.failed, length)
	return w.judge(rows)
}

// write makes the file: a line about the run, a line of names, and a row for each sample.
func write(path string, length time.Duration, rows []sample) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Fprintf(f, "# make soak FOR=%v: demesne serve and its runners under load, %s\n", length, machine())
	c := csv.NewWriter(f)
	c.Write(sampleNames)
	for _, s := range rows {
		c.Write(s.fields())
	}
	c.Flush()
	return c.Error()
}

// judge compares the last quarter of the samples with the second, after the first sandboxes and caches are there.
func (w *worker) judge(rows []sample) error {
	if w.failed > 0 {
		return fmt.Errorf("%d of %d operations failed; the last: %v", w.failed, w.operations, w.lastFailure)
	}
	if len(rows) < 16 {
		return nil
	}
	quarter := len(rows) / 4
	for _, c := range []struct {
		name  string
		value func(sample) float64
		slack float64
	}{
		{"descriptors", func(s sample) float64 { return float64(s.descriptors) }, 16},
		{"processes", func(s sample) float64 { return float64(s.processes) }, 8},
		{"memory of the server", func(s sample) float64 { return s.server }, 32},
		{"memory of runners", func(s sample) float64 { return s.runners }, 32},
	} {
		before, after := median(rows[quarter:2*quarter], c.value), median(rows[3*quarter:], c.value)
		if after > before*1.25+c.slack {
			return fmt.Errorf("%s grew from %.0f to %.0f", c.name, before, after)
		}
	}
	return nil
}
