package engine

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"demesne/runner"
	"demesne/runner/probe"
	"demesne/runner/userns"
)

// check probes the machine for `demesne check`.
func (e *Engine) check() []runner.Probe {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cg := e.host.Probe()
	b := e.boot
	return probe.Run(ctx, probe.Env{
		Minimal: b.Mode == userns.ModeMinimal, ModeWhy: b.ModeWhy, ModeFix: b.ModeFix,
		UIDMap: b.UIDMap, GIDMap: b.GIDMap, MapWhy: b.MapWhy, MapFix: b.MapFix,
		RealRoot: b.Mode == userns.ModeRoot,
		Limits:   probe.Limits{Mechanism: cg.Detail, Why: cg.Why, Fix: cg.Fix},
		Dir:      e.dir,
		Disk:     probeDirs(b.RunDir),
		Prefix:   probePrefix(b.Key),
	})
}

// probeDirs are where overlayfs is tried: a runner of real root may write to the second only.
func probeDirs(run string) []string {
	return []string{filepath.Join(run, "scratch"), filepath.Join(run, "state")}
}

func probePrefix(key string) string { return "." + key }

// probesLeft finds what the checks of a runner have not removed: they answer in time,
// whatever hangs, and a runner may be killed.
func probesLeft(run, key string) (left []string) {
	for _, dir := range probeDirs(run) {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), probePrefix(key)+".probe-") {
				left = append(left, filepath.Join(dir, e.Name()))
			}
		}
	}
	return left
}

// removeProbe removes a tree with overlayfs' work directory in it, which has mode 0.
func removeProbe(dir string) error {
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
