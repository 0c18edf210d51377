package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"sync"

	"demesne/runner"
	"demesne/runner/wire"
)

const keyMax = 256

// policyOf is the digest of what must be the same for a sandbox to be used again under its key. spec
// was admitted: what was left open is filled in, and secrets are not in it.
func policyOf(spec runner.Spec) string {
	spec.Name, spec.Key, spec.Out, spec.Share, spec.TTL, spec.MaxAge, spec.FreezeIdle = "", "", "", "", 0, 0, 0
	if spec.Egress != nil {
		own := *spec.Egress
		own.Log = ""
		spec.Egress = &own
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return "" // a Spec came as JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// ofKey returns the id of the sandbox with that key at that door, if it is of that policy and shared as asked. Any other of that door is removed. The same key at another door is another sandbox, shared or not.
func (e *Engine) ofKey(asked *runner.Spec, policy string) (id string, err error) {
	door, key := asked.Door, asked.Key
	fits := func(s *runner.Spec, its string) bool {
		return its == policy && (asked.Share == runner.DoorCLI || asked.Share == s.Share)
	}
	if s := e.liveOf(door, key); s != nil {
		if fits(&s.spec, s.kept.policy) {
			return s.id, nil
		}
		return "", s.stop(false)
	}
	d, err := e.keeper()
	if err != nil {
		return "", nil // there are none
	}
	for _, rec := range d.All() {
		if rec.Info.Spec.Key != key || rec.Info.Spec.Door != door || rec.Snapshot || e.lives(rec.Info.ID) {
			continue
		}
		if rec.Info.State == runner.Running {
			return "", wire.Errorf(wire.CodeBusy, "create sandbox with key %q: %w", key, stopped(rec))
		}
		if fits(&rec.Info.Spec, rec.Policy) {
			return rec.Info.ID, nil
		}
		if err := e.stopAsleep(rec, false); err != nil {
			return "", err
		}
	}
	return "", nil
}

// liveOf finds the door's live sandbox with that key. One that is ending is waited for.
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

// ofSpec returns the live sandboxes with such a Spec.
func (e *Engine) ofSpec(such func(*runner.Spec) bool) (found []*sandbox) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.boxes {
		if !s.over() && such(&s.spec) {
			found = append(found, s)
		}
	}
	return found
}

// keyLocks has those who come with the same key wait for each other.
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
