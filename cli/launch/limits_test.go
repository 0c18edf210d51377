package launch

import (
	"strings"
	"testing"
)

func TestLimitFlags(t *testing.T) {
	for _, c := range []struct {
		args string
		ok   bool
	}{
		{"--memory 8m", true}, {"--memory none", true}, {"--memory 8388607", false},
		{"--pids 16", true}, {"--pids none", true}, {"--pids 15", false}, {"--pids 1e3", false}, {"--pids 9999999999", false},
		{"--cpus 0.5", true}, {"--cpus none", true}, {"--cpus 0", false}, {"--cpus Inf", false}, {"--cpus -1", false},
		{"--disk 1m", true}, {"--disk 1023k", false},
	} {
		_, err := (&isolationOptions{}).LimitFlags().Parse(strings.Fields(c.args))
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.args, err)
		}
	}
}
