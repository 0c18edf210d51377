package engine

import (
	"context"
	"time"

	"demesne/runner"
	"demesne/runner/doctor"
	"demesne/runner/userns"
)

// check probes the machine for demesne check.
func (e *Engine) check() []runner.Probe {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cg := e.host.Probe()
	b := e.boot
	return doctor.Run(ctx, doctor.Env{
		Minimal: b.Mode == userns.ModeMinimal, ModeWhy: b.ModeWhy, ModeFix: b.ModeFix,
		UIDMap: b.UIDMap, GIDMap: b.GIDMap, MapWhy: b.MapWhy, MapFix: b.MapFix,
		RealRoot: b.Mode == userns.ModeRoot,
		Limits:   doctor.Limits{Mechanism: cg.Detail, Why: cg.Why, Fix: cg.Fix},
		Dir:      e.dir,
		RunDir:   b.RunDir,
		Key:      b.Key,
	})
}
