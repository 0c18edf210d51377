package cli

import (
	"encoding/base64"
	"sync"
	"unicode/utf8"

	"demesne/proxy/redact"
	"demesne/runner"
	"demesne/session"
)

// tail keeps the end of a stream. The zero value is ready.
type tail struct {
	mu     sync.Mutex
	hidden *redact.Writer // writes to last; nil: no redaction
	last   session.Last
}

// hide redacts values in later writes.
func (t *tail) hide(values *redact.Values) { t.hidden = values.Writer(&t.last) }

func (t *tail) add(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last.Most = runner.OutputKept
	if t.hidden != nil {
		t.hidden.Write(p)
		return
	}
	t.last.Write(p)
}

// text returns the kept bytes as text. If they are not UTF-8, exact is the same bytes in base64.
func (t *tail) text() (kept session.Tail, exact string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hidden != nil {
		t.hidden.Close()
	}
	if b := t.last.End(runner.OutputKept); !utf8.Valid(b) {
		exact = base64.StdEncoding.EncodeToString(b)
	}
	return t.last.Tail(runner.OutputKept), exact
}
