package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// report prints what the run cost and what it skipped, and counts its tests.
func report(results []result) (passed, failed int) {
	type timed struct {
		name string
		wall time.Duration
	}
	var all []timed
	var cpu time.Duration
	for _, r := range results {
		cpu += r.cpu
		broken := r.err != nil
		for _, t := range r.tests {
			all = append(all, timed{r.half.name + " " + t.name, t.wall})
			switch t.status {
			case "PASS":
				passed++
			case "FAIL":
				failed++
				broken = false
			case "SKIP":
				fmt.Printf("== skipped: %s %s\n", r.half.name, t.name)
			}
		}
		if broken { // its process died outside of a test
			failed++
		}
	}
	slices.SortFunc(all, func(a, b timed) int { return cmp.Compare(b.wall, a.wall) })
	fmt.Println("== the slowest tests:")
	for _, t := range all[:min(30, len(all))] {
		fmt.Printf("   %6.1f s  %s\n", t.wall.Seconds(), t.name)
	}
	slices.SortFunc(results, func(a, b result) int { return cmp.Compare(b.cpu, a.cpu) })
	fmt.Println("== the parts that took most CPU:")
	for _, r := range results[:min(30, len(results))] {
		fmt.Printf("   %6.1f s  %s\n", r.cpu.Seconds(), r.name)
	}
	fmt.Printf("== %.0f s of CPU\n", cpu.Seconds())
	return passed, failed
}
