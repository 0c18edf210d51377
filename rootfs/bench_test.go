package rootfs

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"demesne/rootfs/internal/nstest"
)

// benchInUserns is nstest.Enter for a benchmark, with as many ids as the caller can map.
func benchInUserns(b *testing.B) bool {
	b.Helper()
	if nstest.Entered() {
		return true
	}
	cmd := nstest.Self("-test.run=^$", "-test.bench=^"+b.Name()+"$", "-test.benchtime=1000x")
	nstest.Into(cmd, nstest.Maps()[0])
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		b.Skip(err)
	}
	b.SkipNow()
	return false
}

// BenchmarkMountHost reports the median times to make and to remove a tree.
func BenchmarkMountHost(b *testing.B) { benchTree(b, MountHost) }

// BenchmarkMountImage does the same for an image of 40 layers.
func BenchmarkMountImage(b *testing.B) {
	if !benchInUserns(b) {
		return
	}
	var lowers []*os.File
	for n := range 40 {
		lowers = append(lowers, nstest.Layer(b, map[string]string{"etc/passwd": "root:x:0:0::/root:", fmt.Sprint("usr/", n): "", "usr/bin/": ""}))
	}
	benchTree(b, func(l Layout) (*Tree, error) {
		return MountImage(l, Image{Lowers: lowers, UIDs: 65536, GIDs: 65536, WorkingDir: "/usr"})
	})
}

func benchTree(b *testing.B, mount func(Layout) (*Tree, error)) {
	if !benchInUserns(b) {
		return
	}
	dir, shared := nstest.Tmpfs(b), b.TempDir()
	var made, gone []time.Duration
	for i := range b.N {
		d := fmt.Sprintf("%s/%d", dir, i)
		if err := os.Mkdir(d, 0o755); err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		tree, err := mount(Layout{Dir: d, Size: 1 << 30, Init: Source{Path: "/usr/bin/env"},
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
