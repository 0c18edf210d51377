package stream

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

// Capture collects a command's output while --json takes stdout.
type Capture struct{ out, err tail }

// Hide redacts credentials in captured output. Output that is streamed to the caller is not changed.
func (c *Capture) Hide(values *redact.Values) {
	if c != nil {
		c.out.hide(values)
		c.err.hide(values)
	}
}

func (c *Capture) Written() *Written {
	out, outExact := c.out.text()
	err, errExact := c.err.text()
	return &Written{out.Text, err.Text, outExact, errExact, out.Bytes, err.Bytes, out.Cut, err.Cut}
}

// Written is the command's output: the last MiB of each stream.
type Written struct {
	Stdout          string `json:"stdout" doc:"Last MiB of the output as text, with U+FFFD for bytes that are not UTF-8. Absent with --json=FILE."`
	Stderr          string `json:"stderr" doc:"Last MiB of stderr, in the same form."`
	StdoutBase64    string `json:"stdout_base64,omitempty" doc:"The exact bytes of stdout in base64, if they are not UTF-8."`
	StderrBase64    string `json:"stderr_base64,omitempty" doc:"The exact bytes of stderr in base64, if they are not UTF-8."`
	StdoutBytes     int64  `json:"stdout_bytes" doc:"Length of the whole output in bytes."`
	StderrBytes     int64  `json:"stderr_bytes" doc:"Length of the whole stderr in bytes."`
	StdoutTruncated bool   `json:"stdout_truncated" doc:"stdout does not have the beginning of the output."`
	StderrTruncated bool   `json:"stderr_truncated" doc:"stderr does not have the beginning."`
}
