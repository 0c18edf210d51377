package session

import (
	"slices"
	"sync"

	"demesne/proxy/redact"
	"demesne/runner"
)

// hidden are the values of credentials that this process has given to sandboxes, by sandbox. The values of one sandbox
// are blanked in its own texts only: otherwise another sandbox could test guesses. The zero value is ready.
type hidden struct {
	mu sync.Mutex
	of map[string]hiddenValues
}

type hiddenValues struct {
	plain []string
	found *redact.Values
}

// hiddenMost bounds the number of sandboxes.
const hiddenMost = 4096

// add adds the values of secrets to a sandbox's.
func (h *hidden) add(sandbox string, secrets []runner.Secret) {
	if len(secrets) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.of[sandbox]
	for _, s := range secrets {
		if !slices.Contains(v.plain, s.Value) {
			v.plain = append(slices.Clip(v.plain), s.Value)
			v.found = nil
		}
	}
	h.put(sandbox, v)
}

func (h *hidden) put(sandbox string, v hiddenValues) {
	if v.found == nil {
		v.found = redact.New(v.plain...)
	}
	if h.of == nil || len(h.of) >= hiddenMost {
		h.of = map[string]hiddenValues{}
	}
	h.of[sandbox] = v
}

// inherit gives a sandbox the values of the one that it is a copy of.
func (h *hidden) inherit(sandbox, from string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if v, ok := h.of[from]; ok {
		h.put(sandbox, v)
	}
}

func (h *hidden) drop(sandbox string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of, sandbox)
}

// values returns the values of a sandbox; nil: it gave none.
func (h *hidden) values(sandbox string) *redact.Values {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.of[sandbox].found
}

// Hidden returns the values of the credentials that the Service has given to a sandbox; nil: it gave none.
func (s *Service) Hidden(sandbox string) *redact.Values { return s.watch.hidden.values(sandbox) }

// valuesOf returns the values of secrets, or nil.
func valuesOf(secrets []runner.Secret) *redact.Values {
	var all []string
	for _, s := range secrets {
		all = append(all, s.Value)
	}
	return redact.New(all...)
}

// text returns s without the values of a sandbox.
func (h *hidden) text(sandbox, s string) string {
	return h.values(sandbox).Text(s)
}
