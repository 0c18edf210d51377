package session

import "testing"

// TestStopSignal checks the words that images have for their stop signal.
func TestStopSignal(t *testing.T) {
	for word, want := range map[string]int{
		"": 0, "SIGTERM": 15, "TERM": 15, "sigint": 2, "2": 2, "SIGRTMIN+3": 37, "RTMIN": 34, "SIGQUIT": 3, "SIGKILL": 9,
		"0": 0, "65": 0, "-1": 0, "SIGRTMIN+31": 0, "SIGRTMIN-1": 0, "SIGNOSUCH": 0, "SIG": 0, "\n": 0,
	} {
		if got := stopSignal(word); got != want {
			t.Errorf("%q: %d, want %d", word, got, want)
		}
	}
}
