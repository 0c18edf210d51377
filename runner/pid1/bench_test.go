package pid1_test

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"demesne/runner/pid1/pid1api"
)

// BenchmarkExec measures a command from the runner's request to PID 1's exit report.
func BenchmarkExec(b *testing.B) {
	b.Run("fork and wait alone", func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			begin := time.Now()
			pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
			if err != nil {
				b.Fatal(err)
			}
			syscall.Wait4(pid, nil, 0, nil)
			took = append(took, time.Since(begin))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	})
	for _, tt := range []struct {
		name  string
		setup pid1api.Setup
	}{
		{"restricted", pid1api.Setup{Landlock: wide(), Scoped: true, Subreaper: true, Seccomp: pid1api.SeccompOptions{NoSUID: true}}},
		{"bare", pid1api.Setup{Subreaper: true}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			s := start(b, asNobody).setup(tt.setup)
			var took, replied []time.Duration
			g := args("/bin/true")
			for b.Loop() {
				s.next++
				g.Exec = s.next
				begin := time.Now()
				if err := s.call(pid1api.OpExec, g, nil, nil); err != nil {
					b.Fatal(err)
				}
				replied = append(replied, time.Since(begin))
				<-s.exited
				took = append(took, time.Since(begin))
			}
			slices.Sort(took)
			slices.Sort(replied)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(replied[len(took)/2].Microseconds()), "p50-reply-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			b.Logf("landlock %v, seccomp %v", s.facts.Landlocked, s.facts.Filtered)
		})
	}
}
