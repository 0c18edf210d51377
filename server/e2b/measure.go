package e2b

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner/fileops"
	"demesne/server"
)

// sample is one measurement of a sandbox.
type sample struct {
	Timestamp  time.Time `json:"timestamp"`
	Unix       int64     `json:"timestampUnix"`
	CPUCount   int       `json:"cpuCount"`
	CPUUsedPct float64   `json:"cpuUsedPct"`
	MemUsed    int64     `json:"memUsed"`
	MemTotal   int64     `json:"memTotal"`
	MemCache   int64     `json:"memCache"`
	DiskUsed   int64     `json:"diskUsed"`
	DiskTotal  int64     `json:"diskTotal"`

	cpu float64 // seconds so far
}

// maxSamples and maxEvents bound what is kept in memory of one sandbox.
const maxSamples, maxEvents = 300, 1000

// hostCPUs and hostMemoryMB return the values that the API reports for a sandbox without limits.
func hostCPUs() int { return runtime.NumCPU() }

func hostMemoryMB() int {
	var i unix.Sysinfo_t
	if unix.Sysinfo(&i) != nil {
		return 0
	}
	return int(uint64(i.Totalram) * uint64(i.Unit) >> 20)
}

// measure adds a sample. A sandbox is measured when a client asks, so measuring costs an unwatched one nothing.
func (e *entry) measure(ctx context.Context) (sample, error) {
	u, err := e.store.backend.Usage(ctx, e.rec.name())
	if err != nil {
		return sample{}, err
	}
	rec, now := e.snap(), time.Now().UTC()
	m := sample{
		Timestamp: now, Unix: now.Unix(), CPUCount: cmp.Or(rec.CPUs, hostCPUs()), MemUsed: u.Memory, MemCache: u.Cache,
		MemTotal: int64(cmp.Or(rec.MemoryMB, hostMemoryMB())) << 20, cpu: u.CPU,
	}
	e.with(ctx, func(sb server.Sandbox) error {
		a, err := sb.Tree(ctx, nil, "/", fileops.Request{Op: fileops.OpSpace, Path: "/"}, nil, nil)
		if err == nil && a.Space != nil {
			m.DiskTotal = max(a.Space.Total, 0)
			m.DiskUsed = min(max(a.Space.Used, 0), m.DiskTotal)
		}
		return err
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	since, used := rec.Started, u.CPU
	if n := len(e.samples); n > 0 {
		since, used = e.samples[n-1].Timestamp, u.CPU-e.samples[n-1].cpu
	}
	if passed := now.Sub(since).Seconds(); passed > 0 && used > 0 {
		m.CPUUsedPct = 100 * used / passed / float64(m.CPUCount)
	}
	e.samples = append(e.samples, m)
	if len(e.samples) > maxSamples {
		e.samples = slices.Delete(e.samples, 0, len(e.samples)-maxSamples)
	}
	return m, nil
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) error {
	e, err := s.found(r, nil)
	if err != nil {
		return err
	}
	if e.running() {
		if _, err := e.measure(r.Context()); err != nil {
			return err
		}
	}
	q, all := r.URL.Query(), []sample{}
	from, _ := strconv.ParseInt(q.Get("start"), 10, 64)
	to, err := strconv.ParseInt(q.Get("end"), 10, 64)
	e.mu.Lock()
	for _, m := range e.samples {
		if m.Unix >= from && (err != nil || m.Unix <= to) {
			all = append(all, m)
		}
	}
	e.mu.Unlock()
	return answer(w, http.StatusOK, all)
}

func (s *Server) metricsOfMany(w http.ResponseWriter, r *http.Request) error {
	all := map[string]sample{}
	ids := strings.Split(r.URL.Query().Get("sandbox_ids"), ",")
	for _, id := range ids[:min(len(ids), 100)] {
		if e := s.store.get(id); e != nil && e.running() {
			if m, err := e.measure(r.Context()); err == nil {
				all[id] = m
			}
		}
	}
	return answer(w, http.StatusOK, map[string]any{"sandboxes": all})
}

// envdMetrics answers envd's form of the same.
func (s *Server) envdMetrics(w http.ResponseWriter, r *http.Request) error {
	m, err := entryOf(r.Context()).measure(r.Context())
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, map[string]any{
		"ts": m.Unix, "cpu_count": m.CPUCount, "cpu_used_pct": m.CPUUsedPct, "mem_total": m.MemTotal, "mem_used": m.MemUsed,
		"mem_cache": m.MemCache, "disk_used": m.DiskUsed, "disk_total": m.DiskTotal,
	})
}

func (s *Server) envs(w http.ResponseWriter, r *http.Request) error {
	m := entryOf(r.Context()).snap().Env
	if m == nil {
		m = map[string]string{}
	}
	return answer(w, http.StatusOK, m)
}

// logEntry is one event in the life of a sandbox. The output of its commands goes only to their clients.
type logEntry struct {
	Timestamp time.Time         `json:"timestamp"`
	Level     string            `json:"level"`
	Message   string            `json:"message"`
	Fields    map[string]string `json:"fields"`
}

// note records an event.
func (e *entry) note(level, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, logEntry{time.Now().UTC(), level, message, map[string]string{"sandboxID": e.rec.ID}})
	if len(e.events) > maxEvents {
		e.events = slices.Delete(e.events, 0, len(e.events)-maxEvents)
	}
}

func (s *Server) logs(w http.ResponseWriter, r *http.Request) error {
	e, err := s.found(r, nil)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	start, _ := strconv.ParseInt(cmp.Or(q.Get("start"), q.Get("cursor")), 10, 64)
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil || limit <= 0 {
		limit = maxEvents
	}
	type line struct {
		Timestamp time.Time `json:"timestamp"`
		Line      string    `json:"line"`
	}
	entries, lines := []logEntry{}, []line{}
	e.mu.Lock()
	for _, ev := range e.events {
		if ev.Timestamp.UnixMilli() >= start && len(entries) < limit && strings.Contains(ev.Message, q.Get("search")) {
			entries, lines = append(entries, ev), append(lines, line{ev.Timestamp, ev.Message})
		}
	}
	e.mu.Unlock()
	if strings.HasPrefix(r.URL.Path, "/v2/") {
		return answer(w, http.StatusOK, map[string]any{"logs": entries})
	}
	return answer(w, http.StatusOK, map[string]any{"logs": lines, "logEntries": entries})
}

// sortedKeys returns an iterator over the keys of m in their order.
func sortedKeys[V any](m map[string]V) func(func(string) bool) {
	return slices.Values(slices.Sorted(maps.Keys(m)))
}
