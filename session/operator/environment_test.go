package operator

import (
	"math"
	"testing"
	"time"

	"demesne/runner"
	"demesne/session"
)

// TestEscapeM2CeilingsOfTheEnvironment checks what bounds models by the variables and by the machine, and what a call gets
// that asks for nothing.
func TestEscapeM2CeilingsOfTheEnvironment(t *testing.T) {
	m := machine{memory: 8 << 30, pids: 32768, cpus: 4}
	env := map[string]string{}
	get := func(name string) string { return env[name] }
	unasked := func(b session.Bounds) runner.Limits { // on a machine of that capacity
		return usual(b.Limits, b.Max, runner.Limits{Memory: 4 << 30, CPUs: 4, PIDs: runner.DefaultPIDs, Disk: runner.DefaultDisk})
	}
	c, err := fromEnvironment(get, m)
	if want := (runner.Limits{Memory: 6 << 30, CPUs: 4, PIDs: 8192, Disk: 4 << 30}); err != nil || c.Max != want || c.MaxTimeout != runner.Longest || unasked(c) != (runner.Limits{}) {
		t.Errorf("of the machine: %+v %v", c, err)
	}
	if c, _ := fromEnvironment(get, machine{memory: 1 << 30, pids: 400, cpus: 1}); c.Max.PIDs != runner.DefaultPIDs || c.Max.Disk != runner.DefaultDisk {
		t.Errorf("of a small machine: %+v", c)
	}
	if c, _ := fromEnvironment(get, machine{memory: 1 << 40, pids: math.MaxInt64, cpus: 256}); c.Max.PIDs != 1<<15 {
		t.Errorf("of a large machine: %+v", c)
	}
	env = map[string]string{varMemory: "512m", varDisk: "1G", varPIDs: "100", varCPUs: "0.5", varTimeout: "90s"}
	c, err = fromEnvironment(get, m)
	if want := (runner.Limits{Memory: 512 << 20, CPUs: 0.5, PIDs: 100, Disk: 1 << 30}); err != nil || c.Max != want || unasked(c) != want || c.MaxTimeout != 90*time.Second {
		t.Errorf("of the environment: %+v %v", c, err)
	}
	env = map[string]string{varMemory: "64g", varDisk: "1t", varPIDs: "600"}
	if c, err = fromEnvironment(get, m); err != nil || unasked(c) != (runner.Limits{}) || c.Max.Disk != 1<<40 {
		t.Errorf("above what the runner gives by itself: %+v %v", c, err)
	}
	for variable, values := range map[string][]string{
		varMemory: {"0", "-1", "m", "1x", "0.1", "99999999t", "none"}, varDisk: {"x"}, varPIDs: {"0", "-1", "1.5", "x"},
		varCPUs: {"0", "-1", "NaN", "Inf", "x"}, varTimeout: {"0", "0s", "-1s", "49h", "60", "x"},
	} {
		for _, v := range values {
			env = map[string]string{variable: v}
			if c, err := fromEnvironment(get, m); err == nil {
				t.Errorf("%s=%s: %+v", variable, v, c)
			}
		}
	}
	if m, err := thisMachine(); err != nil || m.memory < 1<<20 || m.cpus < 1 || m.pids < 100 {
		t.Errorf("this machine: %+v %v", m, err)
	}
}
