package client

import (
	"testing"

	"demesne/runner"
)

func TestTotals(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        runner.Limits
		bad         bool
	}{
		{EnvTotalMemory, "16g", runner.Limits{Memory: 16 << 30}, false},
		{EnvTotalMemory, "1.5G", runner.Limits{Memory: 3 << 29}, false},
		{EnvTotalMemory, "4096", runner.Limits{Memory: 4096}, false},
		{EnvTotalDisk, "512m", runner.Limits{Disk: 512 << 20}, false},
		{EnvTotalPIDs, "2000", runner.Limits{PIDs: 2000}, false},
		{EnvTotalCPUs, "1.5", runner.Limits{CPUs: 1.5}, false},
		{EnvTotalPIDs, "2k", runner.Limits{}, true},
		{EnvTotalMemory, "none", runner.Limits{}, true},
		{EnvTotalMemory, "0", runner.Limits{}, true},
		{EnvTotalMemory, "-1g", runner.Limits{}, true},
		{EnvTotalMemory, "NaN", runner.Limits{}, true},
		{EnvTotalMemory, "1e30g", runner.Limits{}, true},
		{EnvTotalCPUs, "inf", runner.Limits{}, true},
	} {
		got, err := totals(func(name string) string {
			if name == c.name {
				return c.value
			}
			return ""
		})
		if (err != nil) != c.bad || err == nil && *got != c.want {
			t.Errorf("%s=%s: %+v, %v", c.name, c.value, got, err)
		}
	}
	if got, err := totals(func(string) string { return "" }); got != nil || err != nil {
		t.Errorf("unset: %+v, %v", got, err)
	}
}
