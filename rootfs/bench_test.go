package rootfs

import (
	"fmt"
	"os"
	"testing"
)

// benchInUserns is inUserns for a benchmark: with as many ids as the caller can map.
func benchInUserns(b *testing.B) bool {
	b.Helper()
	if os.Getenv(nsVar) != "" {
		return true
	}
	cmd := usernsCommand(idMaps()[0])
	cmd.Args = append(cmd.Args, "-test.run=^$", "-test.bench=^"+b.Name()+"$", "-test.benchtime="+fmt.Sprint(max(b.N, 200))+"x")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		b.Skip(err)
	}
	b.SkipNow()
	return false
}

func BenchmarkMountHost(b *testing.B) {
	if !benchInUserns(b) {
		return
	}
	dir := mountDir(b)
	for i := range b.N {
		d := fmt.Sprintf("%s/%d", dir, i)
		if err := os.Mkdir(d, 0o755); err != nil {
			b.Fatal(err)
		}
		tree, err := MountHost(Layout{Dir: d, Size: 1 << 30, Init: Source{Path: "/bin/true"}, Out: Source{Path: d}, Workspace: Source{Path: d}})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := tree.Unmount(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
