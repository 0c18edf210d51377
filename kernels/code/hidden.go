package code

import (
	"encoding/json"
	"strings"

	"demesne/kernels"
	"demesne/proxy/redact"
)

// Blanked returns a bundle without the values of secrets; values may be nil. A representation that is not JSON afterwards is
// left out: its value was part of the syntax.
func Blanked(b kernels.Bundle, values *redact.Values) kernels.Bundle {
	if b == nil || values == nil {
		return b
	}
	shown := kernels.Bundle{}
	for mime, raw := range b {
		if text := values.Text(string(raw)); json.Valid([]byte(text)) {
			shown[mime] = json.RawMessage(text)
		}
	}
	return shown
}

// Hider passes on the outputs of an execution without the values of secrets. What may begin a value waits for the next
// output of its stream, or for Rest.
type Hider struct {
	values         *redact.Values // nil: no secrets
	emit           func(kernels.Output)
	text           strings.Builder // what a stream let through
	stdout, stderr *redact.Writer
}

// NewHider returns a Hider; values may be nil.
func NewHider(values *redact.Values, emit func(kernels.Output)) *Hider {
	h := &Hider{values: values, emit: emit}
	h.stdout, h.stderr = values.Writer(&h.text), values.Writer(&h.text)
	return h
}

// Show passes an output on.
func (h *Hider) Show(o kernels.Output) {
	switch {
	case o.Stdout != "":
		h.stdout.Write([]byte(o.Stdout))
		o.Stdout = h.take()
	case o.Stderr != "":
		h.stderr.Write([]byte(o.Stderr))
		o.Stderr = h.take()
	default:
		o.Display = Blanked(o.Display, h.values)
	}
	h.pass(o)
}

// Rest passes on what the streams hold back.
func (h *Hider) Rest() {
	h.stdout.Close()
	h.pass(kernels.Output{Stdout: h.take()})
	h.stderr.Close()
	h.pass(kernels.Output{Stderr: h.take()})
}

func (h *Hider) pass(o kernels.Output) {
	if o.Stdout != "" || o.Stderr != "" || o.Display != nil {
		h.emit(o)
	}
}

func (h *Hider) take() string {
	defer h.text.Reset()
	return h.text.String()
}
