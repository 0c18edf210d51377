package e2b

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"

	"demesne/session"
)

// keyHeader is the header of create that makes a repeated request find the sandbox of the first one.
const keyHeader = "Idempotency-Key"

// longestKey bounds a key, as the SDKs do.
const longestKey = 255

// errReused means that a key names another request.
var errReused = refusal{http.StatusConflict, "the idempotency key belongs to another request"}

// creationOf returns the creation that a request names; nil: it has no key.
func creationOf(r *http.Request, q any) (*creation, error) {
	key := r.Header.Get(keyHeader)
	if key == "" {
		return nil, nil
	}
	if len(key) > longestKey {
		return nil, fmt.Errorf("%w: %s: more than %d characters", session.ErrInvalid, keyHeader, longestKey)
	}
	text, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	return &creation{key, hex.EncodeToString(sum[:])}, nil
}

// claim returns the sandbox of a creation, or else the right to make it, which release ends. It waits while another request
// makes the sandbox; if that fails, this one is next. A nil creation can always be made.
func (st *store) claim(ctx context.Context, c *creation) (e *entry, release func(), err error) {
	if c == nil {
		return nil, func() {}, nil
	}
	for {
		st.mu.Lock()
		busy := st.claims[c.Key]
		if busy == nil {
			e, err := st.created(c)
			done := make(chan struct{})
			if e == nil && err == nil {
				st.claims[c.Key] = done
			}
			st.mu.Unlock()
			return e, func() {
				st.mu.Lock()
				delete(st.claims, c.Key)
				st.mu.Unlock()
				close(done)
			}, err
		}
		st.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// created returns the sandbox of a creation, or nil. mu is held.
func (st *store) created(c *creation) (*entry, error) {
	for _, e := range st.entries {
		if was := e.snap().Creation; was != nil && was.Key == c.Key {
			if was.Body != c.Body {
				return nil, errReused
			}
			return e, nil
		}
	}
	return nil, nil
}
