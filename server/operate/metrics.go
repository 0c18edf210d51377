package operate

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"demesne/runner"
	"demesne/session/events"
)

// metrics are the counters of a server. Labels have few values: none comes from a client or a sandbox.
type metrics struct {
	handler http.Handler

	runs, commands, events, limits, secrets, requests *prometheus.CounterVec
	reaped, auditErrors, cpu                          prometheus.Counter
	requestTook                                       *prometheus.HistogramVec
	duration                                          prometheus.Histogram

	activeRuns atomic.Int64

	mu      sync.Mutex
	running map[string]bool // commands, by the run of their events
}

// The buckets of durations, of commands and of requests.
var (
	requestSeconds = []float64{.002, .01, .05, .25, 1, 5, 30}
	seconds        = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
)

// newMetrics returns the metrics of a server. list is [Options].Sandboxes, and clients counts the stream's clients.
func newMetrics(version string, list func(context.Context) ([]runner.Info, error), clients func() int) *metrics {
	registry := prometheus.NewRegistry()
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		registry.MustRegister(h)
		return h
	}
	m := &metrics{
		running:     map[string]bool{},
		runs:        counter("mcp_runs_total", "Runs that ended, by status.", "status"),
		commands:    counter("mcp_commands_total", "Commands that ended, by status.", "status"),
		reaped:      counter("mcp_reaper_deletes_total", "Sandboxes that were removed because their time was over.").WithLabelValues(),
		duration:    histogram("mcp_command_duration_seconds", "How long commands took.", seconds).WithLabelValues().(prometheus.Histogram),
		events:      counter("demesne_events_total", "Events, by type.", "type"),
		limits:      counter("demesne_limit_hits_total", "Commands that a limit ended.", "limit"),
		secrets:     counter("demesne_secrets_used_total", "Credentials given to sandboxes."),
		cpu:         counter("demesne_command_cpu_seconds_total", "Processor time of commands that ended.").WithLabelValues(),
		auditErrors: counter("demesne_audit_errors_total", "Events that could not be recorded.").WithLabelValues(),
		requests:    counter("demesne_http_requests_total", "HTTP requests, by route and status.", "method", "route", "code"),
		requestTook: histogram("demesne_http_request_duration_seconds", "How long HTTP requests took, streams included.", requestSeconds, "route"),
	}
	for _, status := range []string{"completed", "failed", "timeout"} {
		m.commands.WithLabelValues(status)
	}
	for _, status := range []string{"completed", "failed", "canceled"} {
		m.runs.WithLabelValues(status)
	}
	registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "mcp_active_runs", Help: "Runs that go on."}, func() float64 { return float64(m.activeRuns.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "demesne_active_commands", Help: "Commands that run."}, m.activeCommands),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "demesne_event_clients", Help: "Clients that wait for events."},
			func() float64 { return float64(clients()) }),
		sandboxes(list),
	)
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "demesne_build_info", Help: "The version of this server."}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	registry.MustRegister(build)
	m.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
	return m
}

func (m *metrics) serve(w http.ResponseWriter, r *http.Request) { m.handler.ServeHTTP(w, r) }

func (m *metrics) activeCommands() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return float64(len(m.running))
}

// known are the types that have a counter of their own. Types of later packages count as other.
var known = map[events.Type]bool{
	events.ExecutionStarted: true, events.ExecutionCompleted: true, events.ExecutionFailed: true, events.ExecutionTimeout: true,
	events.SessionCreated: true, events.SessionKilled: true, events.PackageInstalled: true, events.EgressRequested: true,
	events.EgressApproved: true, events.EgressDenied: true, events.VaultAccessed: true, events.ResourceExceeded: true,
	events.ArtifactSigned: true, events.QueueBackpressure: true, events.AccessRefused: true,
	events.HostRequested: true, events.HostApproved: true, events.HostDenied: true, events.HostStarted: true, events.HostCompleted: true,
}

// ends are the statuses of commands, by the events of their end.
var ends = map[events.Type]string{events.ExecutionCompleted: "completed", events.ExecutionFailed: "failed", events.ExecutionTimeout: "timeout"}

// event counts an event.
func (m *metrics) event(e *events.Event) {
	word := string(e.Type)
	if !known[e.Type] {
		word = "other"
	}
	m.events.WithLabelValues(word).Inc()
	switch e.Type {
	case events.ExecutionStarted:
		m.mu.Lock()
		m.running[e.Run] = true
		m.mu.Unlock()
	case events.VaultAccessed:
		m.secrets.WithLabelValues().Inc()
	case events.ResourceExceeded:
		m.limits.WithLabelValues(limitWord(e.Detail["limit"])).Inc()
	case events.SessionKilled:
		if e.Detail["cause"] == events.Timeout || e.Detail["action"] == "gc" {
			m.reaped.Inc()
		}
	case events.ExecutionCompleted, events.ExecutionFailed, events.ExecutionTimeout:
		m.ended(e, ends[e.Type])
	}
}

// ended counts a command that ended.
func (m *metrics) ended(e *events.Event, status string) {
	m.mu.Lock()
	delete(m.running, e.Run)
	m.mu.Unlock()
	m.commands.WithLabelValues(status).Inc()
	if s, err := strconv.ParseFloat(e.Detail["seconds"], 64); err == nil && s >= 0 {
		m.duration.Observe(s)
	}
	if s, err := strconv.ParseFloat(e.Detail["cpu_seconds"], 64); err == nil && s >= 0 {
		m.cpu.Add(s)
	}
}

func limitWord(limit string) string {
	switch limit {
	case string(runner.OOM), string(runner.DiskFull), string(runner.PIDLimit), string(runner.OverBudget):
		return limit
	}
	return "other"
}

// sandboxes lists the sandboxes of the machine's user, and counts them when it is asked.
type sandboxes func(context.Context) ([]runner.Info, error)

// listTime bounds one list.
const listTime = 5 * time.Second

var (
	activeSandboxes = prometheus.NewDesc("mcp_active_sandboxes", "Sandboxes that exist and are not snapshots.", nil, nil)
	sandboxStates   = prometheus.NewDesc("demesne_sandboxes", "Sandboxes, by state.", []string{"state"}, nil)
)

// Describe implements [prometheus.Collector].
func (s sandboxes) Describe(to chan<- *prometheus.Desc) { to <- activeSandboxes; to <- sandboxStates }

// Collect implements [prometheus.Collector].
func (s sandboxes) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), listTime)
	defer cancel()
	all, err := s(ctx)
	if err != nil {
		to <- prometheus.NewInvalidMetric(activeSandboxes, err)
		return
	}
	states, active := map[runner.State]int{runner.Running: 0}, 0
	for _, i := range all {
		states[i.State]++
		if i.State != runner.Snapshot {
			active++
		}
	}
	to <- prometheus.MustNewConstMetric(activeSandboxes, prometheus.GaugeValue, float64(active))
	for state, n := range states {
		to <- prometheus.MustNewConstMetric(sandboxStates, prometheus.GaugeValue, float64(n), string(state))
	}
}
