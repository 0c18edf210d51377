package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/store"
)

const keyMax = 256

// holder is the sandbox that a key names: a live one, or the record of one that has files but no processes.
type holder struct {
	id   string // empty: no sandbox has the key
	live *sandbox
	rec  store.Record
}

// ofKey finds the door's sandbox with that key. The same key at another door names another sandbox, shared or not.
// A sandbox of another runner is an error.
func (e *Engine) ofKey(door runner.Door, key string) (holder, error) {
	if s := e.liveOf(door, key); s != nil {
		return holder{id: s.id, live: s}, nil
	}
	d, err := e.keeper()
	if err != nil {
		return holder{}, nil // without a directory there are no persistent sandboxes
	}
	for _, rec := range d.All() {
		if rec.Info.Spec.Key != key || rec.Info.Spec.Door != door || rec.Snapshot || e.lives(rec.Info.ID) {
			continue
		}
		if rec.Info.State == runner.Running {
			return holder{}, ipc.Errorf(ipc.CodeBusy, "find sandbox of key %q: %w", key, stopped(rec))
		}
		return holder{id: rec.Info.ID, rec: rec}, nil
	}
	return holder{}, nil
}

// fits returns an error that names each argument by which h differs from the request. Secrets are compared only if
// h has processes: a stopped sandbox gets its secrets when it starts.
func (h holder) fits(asked runner.Spec, secrets []runner.Secret) error {
	made := h.rec.Info.Spec.Given
	var diffs []string
	if h.live != nil {
		made = h.live.spec.Given
		diffs = h.live.secretsUnlike(secrets)
	}
	if diffs = append(differences(made, asked.Given), diffs...); len(diffs) == 0 {
		return nil
	}
	return ipc.Errorf(ipc.CodeDiffers, "find sandbox of key %q: %s has other settings: %s", asked.Key, h.id, strings.Join(diffs, "; "))
}

// differences describes the arguments in asked that have another value in made. Defaults differ from no value. It
// is pure.
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
		return h.live.stop(false)
	}
	return e.stopAsleep(h.rec, false)
}

// findKey reports which sandbox a create call with a key will get; an empty id means a new one. For a sandbox that
// is to be replaced it closes the listeners, so that the caller can open them. That sandbox loses its processes
// now, and its files when the new one can be made.
func (c *caller) findKey(spec runner.Spec, _ *ipc.Message) (*api.Created, error) {
	if err := admitKey(spec); err != nil {
		return nil, err
	}
	defer c.e.keys.lock(spec.Key)()
	h, err := c.e.ofKey(c.door, spec.Key)
	switch {
	case err != nil:
		return nil, err
	case h.id == "":
		return &api.Created{}, nil
	case !spec.Replace:
		return &api.Created{ID: h.id, Existing: true}, h.fits(spec, secretsOf(spec.Egress))
	case h.live != nil && len(h.live.spec.Publish) > 0:
		return &api.Created{}, h.live.stop(true)
	}
	return &api.Created{}, nil
}

// takeKey returns the existing sandbox of the key of s, or prepares for making s: it removes a sandbox that is to
// be replaced. The caller holds the lock of the key.
func (e *Engine) takeKey(s *sandbox, replace bool) (existing string, replaced bool, err error) {
	h, err := e.ofKey(s.spec.Door, s.spec.Key)
	switch {
	case err != nil || h.id == "":
		return "", false, err
	case !replace:
		return h.id, false, h.fits(s.spec, secretsOf(s.egress))
	}
	if err := s.unpacked(); err != nil {
		return "", false, err
	}
	if err := e.ifFree(s, h.id, func() {}); err != nil {
		return "", false, err
	}
	return "", true, h.remove(e)
}

func admitKey(spec runner.Spec) error {
	if spec.Key != "" && spec.Lifetime != runner.Persistent || len(spec.Key) > keyMax {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: key %.64q: longer than %d bytes, or the sandbox is not persistent", spec.Key, keyMax)
	}
	if spec.Replace && spec.Key == "" {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: replace needs a key")
	}
	return nil
}

// liveOf finds the door's live sandbox with that key. It waits for the end of one that is ending.
func (e *Engine) liveOf(door runner.Door, key string) *sandbox {
	for _, s := range e.ofSpec(func(spec *runner.Spec) bool { return spec.Key == key && spec.Door == door }) {
		<-s.built
		if _, err := s.open(); err == nil {
			return s
		}
		<-s.finished
	}
	return nil
}

// ofSpec returns the live sandboxes whose Spec satisfies such.
func (e *Engine) ofSpec(such func(*runner.Spec) bool) (found []*sandbox) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.sandboxes {
		if !s.done() && such(&s.spec) {
			found = append(found, s)
		}
	}
	return found
}

// keyLocks serializes the requests for each key.
type keyLocks struct {
	mu   sync.Mutex
	held map[string]*keyLock
}

type keyLock struct {
	mu    sync.Mutex
	users int
}

func (k *keyLocks) lock(key string) (unlock func()) {
	k.mu.Lock()
	if k.held == nil {
		k.held = map[string]*keyLock{}
	}
	l := k.held[key]
	if l == nil {
		l = &keyLock{}
		k.held[key] = l
	}
	l.users++
	k.mu.Unlock()
	l.mu.Lock()
	return func() {
		l.mu.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.held, key)
		}
	}
}
