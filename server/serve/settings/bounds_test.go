package settings

import (
	"testing"

	"demesne/runner"
	"demesne/runner/limits"
	"demesne/server/servecmd"
	"demesne/session"
)

// TestCeilingsUnset checks that the ceilings that the operator left out are the documented ones, for models too.
func TestCeilingsUnset(t *testing.T) {
	usual := limits.Resolve(runner.Limits{})
	b := Bounds(&servecmd.Options{}, "team")
	if b.Max != (runner.Limits{Memory: usual.Memory, Disk: usual.Disk, PIDs: runner.DefaultPIDs}) || b.Egress != servecmd.DefaultEgress {
		t.Errorf("%+v", b)
	}
	models, err := Models(&servecmd.Options{Bounds: session.Bounds{Limits: runner.Limits{Memory: 1 << 30, Disk: -1}}}, "team")
	if err != nil {
		t.Fatal(err)
	}
	huge := runner.Limits{Memory: 1 << 60, Disk: 1 << 60, PIDs: 1 << 40}
	if got := models.Grant(huge, 0).Limits; got.Memory != 1<<30 || got.PIDs != runner.DefaultPIDs || got.Disk <= 0 || got.Disk == huge.Disk || models.Egress != "open" {
		t.Errorf("of models: %+v", got)
	}
}
