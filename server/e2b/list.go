package e2b

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"demesne/runner"
	"demesne/session"
)

// detail is the answer to getInfo; a list omits what is specific to one sandbox.
type detail struct {
	SandboxID   string            `json:"sandboxID"`
	TemplateID  string            `json:"templateID"`
	Alias       string            `json:"alias,omitempty"`
	ClientID    string            `json:"clientID"`
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	State       string            `json:"state"`
	CPUCount    int               `json:"cpuCount"`
	MemoryMB    int               `json:"memoryMB"`
	DiskSizeMB  int               `json:"diskSizeMB"`
	EnvdVersion string            `json:"envdVersion"`
	Metadata    map[string]string `json:"metadata"`
	Volumes     []volumeMount     `json:"volumeMounts,omitempty"`

	Internet  *bool      `json:"allowInternetAccess,omitempty"`
	Domain    *string    `json:"domain,omitempty"`
	EnvdToken string     `json:"envdAccessToken,omitempty"`
	Network   *network   `json:"network,omitempty"`
	Lifecycle *lifecycle `json:"lifecycle,omitempty"`
}

type lifecycle struct {
	OnTimeout  string `json:"onTimeout"`
	AutoResume bool   `json:"autoResume"`
}

func (r record) listed() detail {
	d := detail{
		SandboxID: r.ID, TemplateID: r.Template, Alias: r.Template, ClientID: "demesne", StartedAt: r.Started, EndAt: r.End, State: r.State,
		CPUCount: cmp.Or(r.CPUs, hostCPUs()), MemoryMB: cmp.Or(r.MemoryMB, hostMemoryMB()), DiskSizeMB: cmp.Or(r.DiskMB, runner.DefaultDisk>>20),
		EnvdVersion: version, Metadata: r.Metadata, Volumes: r.Volumes,
	}
	if d.Metadata == nil {
		d.Metadata = map[string]string{}
	}
	return d
}

// existing returns the sandboxes that the runner has. Others were removed past this API, as by demesne rm; their records go
// at their timeout.
func (s *Server) existing(ctx context.Context, all []*entry) []*entry {
	all = slices.DeleteFunc(all, func(e *entry) bool { return e.state() == creating })
	list, err := s.opts.Backend.List(ctx) // after the look at their state, so that it has all that were made
	if err != nil {
		return all
	}
	there := map[string]bool{}
	for _, i := range list {
		there[i.Name] = i.State != runner.Ended
	}
	return slices.DeleteFunc(all, func(e *entry) bool { return !there[e.rec.name()] })
}

func (s *Server) detail(w http.ResponseWriter, r *http.Request) error {
	e, err := s.found(r, nil)
	if err != nil {
		return err
	}
	if len(s.existing(r.Context(), []*entry{e})) == 0 {
		return noSandbox(e.rec.ID)
	}
	rec := e.snap()
	d := rec.listed()
	on := "kill"
	if rec.AutoPause {
		on = "pause"
	}
	open := rec.Network.open()
	d.Internet, d.Domain, d.EnvdToken, d.Network, d.Lifecycle = &open, &s.opts.Domain, rec.Token, &rec.Network, &lifecycle{on, rec.AutoResume}
	return answer(w, http.StatusOK, d)
}

// page is the part of a list that a request asks for. The next page begins after the last item's key.
type page struct {
	limit int
	after string
}

func pageOf(q url.Values) (p page, err error) {
	p.limit = 100
	if text := q.Get("limit"); text != "" {
		if p.limit, err = strconv.Atoi(text); err != nil || p.limit < 1 || p.limit > 1000 {
			return p, fmt.Errorf("%w: limit %q: must be from 1 to 1000", session.ErrInvalid, text)
		}
	}
	if text := q.Get("nextToken"); text != "" {
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			return p, fmt.Errorf("%w: nextToken: not from this server", session.ErrInvalid)
		}
		p.after = string(raw)
	}
	return p, nil
}

// cut returns the items of the page, and sets the header that names the next one.
func cut[T any](w http.ResponseWriter, p page, all []T, key func(T) string) []T {
	if p.after != "" {
		i := slices.IndexFunc(all, func(v T) bool { return key(v) == p.after })
		all = all[i+1:] // a removed item: the list begins again
	}
	if len(all) > p.limit {
		all = all[:p.limit]
		w.Header().Set("x-next-token", base64.RawURLEncoding.EncodeToString([]byte(key(all[p.limit-1]))))
	}
	return all
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	p, err := pageOf(q)
	var want filter
	if err == nil {
		want, err = filterOf(q)
	}
	if err != nil {
		return err
	}
	all, running := []detail{}, 0
	for _, e := range s.existing(r.Context(), s.store.all()) {
		rec := e.snap()
		if want.has(rec) {
			all = append(all, rec.listed())
		}
		if rec.State == "running" {
			running++
		}
	}
	if q.Get("order") == "asc" {
		slices.Reverse(all)
	}
	w.Header().Set("x-total-running", strconv.Itoa(running))
	return answer(w, http.StatusOK, cut(w, p, all, func(d detail) string { return d.SandboxID }))
}

// filter selects sandboxes.
type filter struct {
	metadata map[string]string
	states   []string
	after    time.Time
	template string
}

func filterOf(q url.Values) (f filter, err error) {
	if f.metadata, err = metadataOf(q.Get("metadata")); err != nil {
		return f, err
	}
	for _, text := range q["state"] {
		f.states = append(f.states, strings.Split(text, ",")...)
	}
	if text := q.Get("startedAfter"); text != "" {
		if f.after, err = time.Parse(time.RFC3339, text); err != nil {
			return f, fmt.Errorf("%w: startedAfter %q: not a time", session.ErrInvalid, text)
		}
	}
	f.template = q.Get("template")
	return f, nil
}

// metadataOf parses the query of a list. The SDK encodes keys and values, makes a form of them, and encodes that again as
// one value of the query, which net/url has decoded here.
func metadataOf(text string) (map[string]string, error) {
	form, err := url.ParseQuery(text)
	if err != nil {
		return nil, fmt.Errorf("%w: metadata %q: not a form", session.ErrInvalid, text)
	}
	m := map[string]string{}
	for k, v := range form {
		key, err1 := url.PathUnescape(k)
		value, err2 := url.PathUnescape(v[0])
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("%w: metadata %q: not encoded", session.ErrInvalid, k)
		}
		m[key] = value
	}
	return m, nil
}

func (f filter) has(r record) bool {
	for k, v := range f.metadata {
		if got, there := r.Metadata[k]; !there || got != v {
			return false
		}
	}
	return (len(f.states) == 0 || slices.Contains(f.states, r.State)) && !r.Started.Before(f.after) && (f.template == "" || f.template == r.Template)
}
