package e2b

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"time"

	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/server"
	"demesne/session"
)

// Times in E2B's API.
const (
	defaultTimeout = 300 // seconds
	longestTimeout = int64(30 * 24 * time.Hour / time.Second)
)

// created is the answer to calls that make or connect a sandbox.
type created struct {
	SandboxID    string  `json:"sandboxID"`
	TemplateID   string  `json:"templateID"`
	ClientID     string  `json:"clientID"`
	EnvdVersion  string  `json:"envdVersion"`
	EnvdToken    string  `json:"envdAccessToken"`
	TrafficToken *string `json:"trafficAccessToken"`
	Domain       string  `json:"domain"`
}

func (s *Server) created(rec record) created {
	c := created{
		SandboxID: rec.ID, TemplateID: rec.Template, ClientID: "demesne", EnvdVersion: version, EnvdToken: rec.Token, Domain: s.opts.Domain,
	}
	if rec.TrafficToken != "" {
		c.TrafficToken = &rec.TrafficToken
	}
	return c
}

// createRequest is the body of create.
type createRequest struct {
	TemplateID string            `json:"templateID"`
	Timeout    *int64            `json:"timeout"`
	Metadata   map[string]string `json:"metadata"`
	EnvVars    map[string]string `json:"envVars"`
	Internet   *bool             `json:"allow_internet_access"`
	Network    *network          `json:"network"`
	AutoPause  bool              `json:"autoPause"`
	AutoMemory *bool             `json:"autoPauseMemory"`
	AutoResume struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	Volumes []volumeMount  `json:"volumeMounts"`
	MCP     map[string]any `json:"mcp"` // the SDKs start the gateway themselves
	IAM     map[string]any `json:"iam"`
}

// seconds checks a time that a request names.
func seconds(n *int64, absent int64) (time.Duration, error) {
	v := absent
	if n != nil {
		v = *n
	}
	if v < 0 || v > longestTimeout {
		return 0, fmt.Errorf("%w: timeout %d: must be from 0 to %d seconds", session.ErrInvalid, v, longestTimeout)
	}
	return time.Duration(v) * time.Second, nil
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) error {
	var q createRequest
	if err := body(r, &q); err != nil {
		return err
	}
	rec, err := s.described(&q)
	if err == nil {
		rec.Creation, err = creationOf(r, &q)
	}
	if err != nil {
		return err
	}
	made, release, err := s.store.claim(r.Context(), rec.Creation)
	if err != nil {
		return err
	}
	if made != nil {
		return answer(w, http.StatusCreated, s.created(made.snap()))
	}
	defer release()
	from := s.store.source(rec.Template)
	rec.Start = from.startup(rec.Template)
	if from.snapshot != nil { // its sandboxes have the limits of their source
		if len(rec.Volumes) > 0 {
			return fmt.Errorf("%w: a sandbox from a snapshot has the volumes of its source", session.ErrInvalid)
		}
		rec.Volumes = from.snapshot.Volumes
	} else {
		rec.limit(s.opts.Backend.Grants(r.Context(), from.template.limits(), 0).Limits)
	}
	rec.Template = cmp.Or(rec.Template, "base")
	e, err := s.store.make(r.Context(), *rec, func(name string) (server.Sandbox, error) { return s.sandboxOf(r.Context(), name, rec, from) })
	if err != nil {
		return err
	}
	go e.findAccount() // the first command finds it done
	return answer(w, http.StatusCreated, s.created(e.rec))
}

// limit records the limits of a new sandbox, which clients read as cpuCount, memoryMB and diskSizeMB: those that its template asks
// for, or the usual ones, within the operator's.
func (rec *record) limit(l runner.Limits) {
	rec.CPUs, rec.MemoryMB = int(math.Ceil(max(l.CPUs, 0))), int(max(l.Memory, 0)>>20)
	rec.DiskMB = int(max(l.Disk, 0) >> 20)
}

// limits returns the limits that a template asks for; t may be nil.
func (t *template) limits() (l runner.Limits) {
	if t != nil {
		l.CPUs, l.Memory = float64(t.CPUs), int64(t.MemoryMB)<<20
	}
	return l
}

// described returns the record of a new sandbox.
func (s *Server) described(q *createRequest) (*record, error) {
	d, err := seconds(q.Timeout, defaultTimeout)
	if err != nil {
		return nil, err
	}
	if name, bad := badVariable(q.EnvVars); bad {
		return nil, fmt.Errorf("%w: envVars: %q is not a variable", session.ErrInvalid, name)
	}
	if len(q.IAM) > 0 {
		return nil, fmt.Errorf("%w: iam is not supported by demesne", session.ErrInvalid)
	}
	now := time.Now().UTC()
	rec := &record{
		ID: s.opts.newSandboxID(), Template: q.TemplateID, Metadata: q.Metadata, Env: q.EnvVars, Token: newToken(), Started: now, End: now.Add(d),
		AutoPause: q.AutoPause, AutoResume: q.AutoResume.Enabled, Volumes: q.Volumes,
		PauseCold: q.AutoMemory != nil && !*q.AutoMemory,
	}
	if q.Network != nil {
		rec.Network = *q.Network
	}
	if q.Internet != nil && !*q.Internet {
		rec.Network.Internet = q.Internet
	}
	if p := rec.Network.Public; p != nil && !*p {
		rec.TrafficToken = newToken()
	}
	return rec, nil
}

// source says from what a sandbox is made.
type source struct {
	snapshot *snapshot
	template *template
	image    string
}

// startup returns what a sandbox from that source starts with; nil: nothing. id is the name that the client gave.
func (from *source) startup(id string) *startup {
	switch {
	case from.snapshot != nil:
		return from.snapshot.Start
	case from.template != nil:
		return from.template.of(id).Start
	}
	return nil
}

// source finds a snapshot, a template that was built here, or else an image of that name.
func (st *store) source(id string) source {
	st.mu.Lock()
	defer st.mu.Unlock()
	if snap := st.findSnapshot(id); snap != nil {
		return source{snapshot: snap}
	}
	if t := st.findTemplate(id); t != nil {
		return source{template: t, image: t.image(id)}
	}
	if isBaseTemplate(id) {
		return source{}
	}
	return source{image: id}
}

// sandboxOf makes the sandbox of a record.
func (s *Server) sandboxOf(ctx context.Context, name string, rec *record, from source) (server.Sandbox, error) {
	rules, err := rec.Network.rules(s.opts.Backend.Widest())
	if err == nil {
		rules.Secrets, err = s.credentials(&rec.Network)
	}
	if err != nil {
		return nil, err
	}
	if from.snapshot != nil {
		if err := s.opts.Backend.Fork(ctx, from.snapshot.name(), name); err != nil {
			return nil, err
		}
		sb, err := s.opts.Backend.Open(ctx, name)
		if err == nil && !rec.Network.zero() {
			err = s.opts.Backend.Reach(ctx, name, rules)
		}
		if err != nil {
			s.opts.Backend.Remove(context.WithoutCancel(ctx), name)
			return nil, err
		}
		return sb, nil
	}
	var r session.Request
	c := &r.Create
	c.Spec.Name, c.Spec.Limits, c.Image.Given, c.Egress = name, from.template.limits(), from.image, rules
	if c.Spec.Mounts, err = s.volumes.mounts(rec.Volumes); err != nil {
		return nil, err
	}
	return s.opts.Backend.Create(ctx, r, from.template != nil)
}

// found returns the sandbox that a control call names, and decodes the body of the call unless to is nil.
func (s *Server) found(r *http.Request, to any) (*entry, error) {
	e := s.store.get(r.PathValue("id"))
	if e == nil || e.state() == creating {
		return nil, noSandbox(r.PathValue("id"))
	}
	if to == nil {
		return e, nil
	}
	return e, body(r, to)
}

// notFound is the answer to a call that names something which the namespace does not have.
func notFound(what, name string) error {
	return refusal{http.StatusNotFound, fmt.Sprintf("%s %q was not found", what, name)}
}

// noSandbox is notFound of a sandbox, in the runner's words.
func noSandbox(id string) error {
	return refusal{http.StatusNotFound, ipc.NoSuchSandbox(id).Error()}
}

// unserved is the answer to a call that demesne does not have.
func unserved(r *http.Request) error {
	return refusal{http.StatusNotFound, "demesne does not serve " + r.Method + " " + r.URL.Path}
}

// connect extends a running sandbox, or resumes a paused one.
func (s *Server) connect(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Timeout *int64 `json:"timeout"`
		Memory  *bool  `json:"memory"`
	}
	e, err := s.found(r, &q)
	if err != nil {
		return err
	}
	d, err := seconds(q.Timeout, defaultTimeout)
	if err != nil {
		return err
	}
	was, err := e.resume(r.Context(), d, q.Memory != nil && !*q.Memory)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if was {
		status = http.StatusCreated
	}
	return answer(w, status, s.created(e.snap()))
}

func (s *Server) kill(w http.ResponseWriter, r *http.Request) error {
	e, err := s.found(r, nil)
	if err != nil {
		return err
	}
	there, err := e.remove(context.WithoutCancel(r.Context()))
	if err == nil && !there {
		err = noSandbox(e.rec.ID)
	}
	if err != nil {
		return err
	}
	return empty(w)
}

func (s *Server) setTimeout(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Timeout *int64 `json:"timeout"`
	}
	e, err := s.found(r, &q)
	if err != nil {
		return err
	}
	d, err := seconds(q.Timeout, defaultTimeout)
	if err != nil {
		return err
	}
	return e.until(w, func(time.Time) time.Time { return time.Now().UTC().Add(d) })
}

// refresh keeps a sandbox for at least that time.
func (s *Server) refresh(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Duration *int64 `json:"duration"`
	}
	e, err := s.found(r, &q)
	if err != nil {
		return err
	}
	d, err := seconds(q.Duration, 15)
	if err != nil {
		return err
	}
	return e.until(w, func(end time.Time) time.Time {
		if until := time.Now().UTC().Add(d); until.After(end) {
			return until
		}
		return end
	})
}

// until changes the end of a sandbox, and answers.
func (e *entry) until(w http.ResponseWriter, end func(time.Time) time.Time) error {
	if err := e.change(func(r *record) { r.End = end(r.End) }); err != nil {
		return err
	}
	e.arm()
	return empty(w)
}

var errPaused = refusal{http.StatusConflict, "the sandbox is paused"}

func (s *Server) pause(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Memory *bool `json:"memory"`
	}
	e, err := s.found(r, &q)
	if err != nil {
		return err
	}
	did, err := e.pause(context.WithoutCancel(r.Context()), q.Memory == nil || *q.Memory)
	if err == nil && !did {
		err = errPaused
	}
	if err != nil {
		return err
	}
	return empty(w)
}

// try checks that a build's program starts, in a sandbox like its template's.
func (s *Server) try(ctx context.Context, b *build) error {
	if b.start == nil {
		return nil
	}
	from := source{template: b.template, image: imageOf(b.template.ID, b.id)}
	rec, err := s.described(&createRequest{TemplateID: from.image})
	if err != nil {
		return err
	}
	rec.Start = b.start
	e, err := s.store.make(ctx, *rec, func(name string) (server.Sandbox, error) { return s.sandboxOf(ctx, name, rec, from) })
	if err != nil {
		return stepError{finalStep, err}
	}
	if _, left := e.remove(context.WithoutCancel(ctx)); left != nil {
		s.opts.Log.Printf("remove sandbox %s: %v", rec.ID, left)
	}
	return nil
}
