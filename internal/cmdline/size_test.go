package cmdline

import (
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"90": 90 * time.Second, "1.5": 1500 * time.Millisecond, "2m": 2 * time.Minute, "1h30m": 90 * time.Minute, "48h": 48 * time.Hour,
		"": 0, "0": 0, "-5s": 0, "soon": 0, "1e300": 0, "NaN": 0, "Inf": 0, "-1": 0,
	} {
		var got time.Duration
		err := Duration(&got)(in)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %v, %v; want %v", in, got, err, want)
		}
	}
}
