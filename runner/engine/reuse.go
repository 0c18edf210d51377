package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/sandbox"
	"demesne/runner/store"
)

// holder is the sandbox that a key names: a live one, or the record of one that has files but no processes.
type holder struct {
	id   string // empty: no sandbox has the key
	live *sandbox.Sandbox
	rec  store.Record
}

// ofKey finds the frontend's sandbox with that key. The same key of another frontend names another sandbox, shared or
// not. A sandbox of another runner is an error.
func (e *Engine) ofKey(frontend runner.Frontend, key string) (holder, error) {
	if s := e.liveOf(frontend, key); s != nil {
		return holder{id: s.ID(), live: s}, nil
	}
	d, err := e.machine.Store()
	if err != nil {
		return holder{}, nil // without a directory there are no persistent sandboxes
	}
	all, err := d.Others(e.table.ids())
	if err != nil {
		return holder{}, fmt.Errorf("find sandbox of key %q: %w", key, err)
	}
	for _, rec := range all {
		if rec.Info.Spec.Key != key || rec.Info.Spec.Frontend != frontend || rec.Snapshot || e.table.lives(rec.Info.ID) {
			continue
		}
		if rec.Info.State == runner.Running {
			return holder{}, ipc.Errorf(ipc.CodeBusy, "find sandbox of key %q: %w", key, sandbox.ErrStopped(rec))
		}
		return holder{id: rec.Info.ID, rec: rec}, nil
	}
	return holder{}, nil
}

// fits returns an error that names each argument by which h differs from the request. Credentials are compared only if
// h has processes: a stopped sandbox gets its credentials when it starts.
func (h holder) fits(asked runner.Spec, egress *runner.Egress) error {
	made := h.rec.Info.Spec.Given
	var diffs []string
	if h.live != nil {
		made = h.live.Spec().Given
		diffs = h.live.CredentialsUnlike(egress)
	}
	if diffs = append(differences(made, asked.Given), diffs...); len(diffs) == 0 {
		return nil
	}
	return ipc.Errorf(ipc.CodeDiffers, "find sandbox of key %q: %s has other settings: %s", asked.Key, h.id, strings.Join(diffs, "; "))
}

// differences describes the arguments in asked that have another value in made. A default in asked equals
// every value. It is pure.
func differences(made, asked []runner.Argument) (diffs []string) {
	for _, a := range asked {
		if a.Default {
			continue
		}
		was := "without it"
		if i := slices.IndexFunc(made, func(m runner.Argument) bool { return m.Name == a.Name }); i >= 0 {
			if made[i].Value == a.Value {
				continue
			}
			was = "with " + strconv.Quote(clipped(made[i].Value))
		}
		diffs = append(diffs, fmt.Sprintf("%s: created %s, requested %q", a.Name, was, clipped(a.Value)))
	}
	return diffs
}

// clipped limits the length of an argument in an error.
func clipped(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// remove removes h with its files.
func (h holder) remove(e *Engine) error {
	if h.live != nil {
		return e.stop(h.live, api.Target{})
	}
	return e.machine.StopOther(h.rec, false)
}

// findKey reports which sandbox a create call with a key will get; an empty id means a new one. For a sandbox that
// is to be replaced it closes the listeners, so that the caller can open them. That sandbox loses its processes
// now, and its files when the new one can be made.
func (c *caller) findKey(spec runner.Spec, _ *ipc.Message) (*api.Created, error) {
	if err := sandbox.AdmitKey(spec); err != nil {
		return nil, err
	}
	defer c.e.keys.lock(spec.Key)()
	h, err := c.e.ofKey(c.frontend, spec.Key)
	switch {
	case err != nil:
		return nil, err
	case h.id == "":
		return &api.Created{}, nil
	case !spec.Replace:
		return &api.Created{ID: h.id, Existing: true}, h.fits(spec, spec.Egress)
	case h.live != nil && len(h.live.Spec().Publish) > 0:
		return &api.Created{}, h.live.Stop(0)
	}
	return &api.Created{}, nil
}

// inherit gives the name and the time to live of the sandbox that spec replaces to spec, unless the caller named others.
func (e *Engine) inherit(spec *runner.Spec) error {
	if !spec.Replace || spec.Name != "" && spec.TTL != 0 {
		return nil
	}
	h, err := e.ofKey(spec.Frontend, spec.Key)
	if err != nil || h.id == "" {
		return err
	}
	old := h.rec.Info.Spec
	if h.live != nil {
		old = *h.live.Spec()
	}
	keep := func(argument string) {
		if i := slices.IndexFunc(old.Given, func(a runner.Argument) bool { return a.Name == argument }); i >= 0 {
			spec.Given = append(slices.Clip(spec.Given), old.Given[i])
		}
	}
	if spec.Name == "" {
		spec.Name = old.Name
		keep("name")
	}
	if spec.TTL == 0 {
		spec.TTL = old.TTL
		keep("ttl")
	}
	return nil
}

// takeKey returns the existing sandbox of the key of s, or prepares for making s: it removes a sandbox that is to
// be replaced, once reserve has taken the place of that one. The caller holds the lock of the key.
func (e *Engine) takeKey(s *sandbox.Sandbox, egress *runner.Egress, replace bool, most *runner.Limits, reserve func(id string) error) (existing string, replaced bool, err error) {
	h, err := e.ofKey(s.Spec().Frontend, s.Spec().Key)
	switch {
	case err != nil || h.id == "":
		return "", false, err
	case !replace:
		return h.id, false, h.fits(*s.Spec(), egress)
	}
	if err := s.Unpacked(); err != nil {
		return "", false, err
	}
	if err := e.table.ifFree(s, h.id, most, func() {}); err != nil {
		return "", false, err
	}
	if err := reserve(h.id); err != nil {
		return "", false, err
	}
	return "", true, h.remove(e)
}

// liveOf finds the frontend's live sandbox with that key. It waits for the end of one that is ending.
func (e *Engine) liveOf(frontend runner.Frontend, key string) *sandbox.Sandbox {
	for _, s := range e.table.ofSpec(func(spec *runner.Spec) bool { return spec.Key == key && spec.Frontend == frontend }) {
		if _, err := s.Open(); err == nil {
			return s
		}
		s.Wait()
	}
	return nil
}
