package rootfs

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

// benchInUserns is inUserns for a benchmark: with as many ids as the caller can map.
func benchInUserns(b *testing.B) bool {
	b.Helper()
	if os.Getenv(nsVar) != "" {
		return true
	}
	cmd := usernsCommand(idMaps()[0])
	cmd.Args = append(cmd.Args, "-test.run=^$", "-test.bench=^"+b.Name()+"$", "-test.benchtime=1000x")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		b.Skip(err)
	}
	b.SkipNow()
	return false
}

// BenchmarkMountHost reports the medians of making a tree and of removing it.
func BenchmarkMountHost(b *testing.B) {
	if !benchInUserns(b) {
		return
	}
	dir, shared := mountDir(b), b.TempDir()
	var made, gone []time.Duration
	for i := range b.N {
		d := fmt.Sprintf("%s/%d", dir, i)
		if err := os.Mkdir(d, 0o755); err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		tree, err := MountHost(Layout{Dir: d, Size: 1 << 30, Init: Source{Path: "/usr/bin/env"},
			Out: Source{Path: shared}, Workspace: Source{Path: shared}})
		if err != nil {
			b.Fatal(err)
		}
		made = append(made, time.Since(start))
		start = time.Now()
		if err := tree.Unmount(); err != nil {
			b.Fatal(err)
		}
		gone = append(gone, time.Since(start))
	}
	slices.Sort(made)
	slices.Sort(gone)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(made[b.N/2].Microseconds()), "mount-µs")
	b.ReportMetric(float64(gone[b.N/2].Microseconds()), "unmount-µs")
}
