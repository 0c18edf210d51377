package sandbox

import (
	"testing"

	"demesne/runner"
)

func TestLimitValue(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"memory", "12638257152", "11.8 GiB"}, {"disk", "2147483648", "2.0 GiB"}, {"pids", "512", "512"}, {"memory", "none", "none"},
	} {
		if got := limitValue(runner.LimitReceipt{Name: c.name, Value: c.value}); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.name, c.value, got, c.want)
		}
	}
}
