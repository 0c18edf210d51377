package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"demesne/images"
	"demesne/runner/ipc"
)

// apiVersion and minVersion are the versions of the Engine API that clients may ask for.
const apiVersion, minVersion = "1.44", "1.24"

// bodyMost bounds the body of a request, except archives and contexts of builds.
const bodyMost = 256 << 10

// bodyIdle bounds the wait for each part of a body, and bodyTime the whole.
const bodyIdle, bodyTime = time.Minute, 10 * time.Minute

// timedBody is a body that must come in time.
type timedBody struct {
	io.ReadCloser
	from *http.ResponseController
	idle time.Duration
	end  time.Time
}

func (b *timedBody) Read(p []byte) (int, error) {
	late := time.Now().Add(b.idle)
	if b.end.Before(late) {
		late = b.end
	}
	b.from.SetReadDeadline(late)
	n, err := b.ReadCloser.Read(p)
	if err != nil { // the connection goes on after the body
		b.from.SetReadDeadline(time.Time{})
	}
	return n, err
}

// failure is an error with its status.
type failure struct {
	status int
	text   string
}

func (f *failure) Error() string { return f.text }

func fail(status int, format string, a ...any) error {
	return &failure{status, fmt.Sprintf(format, a...)}
}

// statusOf returns the status of an error.
func statusOf(err error) int {
	var f *failure
	var e *ipc.Error
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &f):
		return f.status
	case errors.As(err, &big):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, images.ErrNotFound):
		return http.StatusNotFound
	case errors.As(err, &e):
		switch e.Code {
		case ipc.CodeInvalid, ipc.CodeCommandNotFound, ipc.CodeNotExecutable, ipc.CodeRequirement:
			return http.StatusBadRequest
		case ipc.CodeExists, ipc.CodeBusy, ipc.CodeTooMany, ipc.CodeTooMuch:
			return http.StatusConflict
		}
	}
	return http.StatusInternalServerError
}

// with finds the container of a path.
func (s *server) with(do func(http.ResponseWriter, *http.Request, *container) error) handle {
	return func(w http.ResponseWriter, r *http.Request) error {
		c, err := s.find(r.PathValue("id"))
		if err != nil {
			return err
		}
		return do(w, r, c)
	}
}

// answer writes a value as JSON.
func answer(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	return encode(w, v)
}

// encode writes a value as JSON, to a client that must take it in time.
func encode(w http.ResponseWriter, v any) error {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(stalled))
	return json.NewEncoder(w).Encode(v)
}

// answerList answers with a list between two pieces of JSON. Only one element at a time is in memory for a client that is slow.
func answerList[T any](w http.ResponseWriter, begin string, list []T, end string, show func(T) any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	for i, v := range list {
		if i > 0 {
			begin = ","
		}
		io.WriteString(w, begin)
		if err := encode(w, show(v)); err != nil {
			return err
		}
		begin = ""
	}
	_, err := io.WriteString(w, begin+end)
	return err
}

// keptMost bounds the text of requests that is kept, as JSON.
const keptMost = 4 << 20

// weight returns the bytes of a value as JSON, which keptMost bounds.
func weight(v ...any) int {
	text, _ := json.Marshal(v)
	return len(text)
}

// keeps checks that there is room for the text of a request. s.mu is held.
func (s *server) keeps(more int) error {
	for _, c := range s.containers {
		more += c.weight
	}
	for _, x := range s.execs {
		more += x.weight
	}
	for _, v := range s.volumes {
		more += v.weight
	}
	for _, n := range s.networks {
		more += n.weight
	}
	if more > keptMost {
		return fail(http.StatusConflict, "all containers, commands, volumes and networks together have more than %d bytes of settings: remove some", keptMost)
	}
	return nil
}

// answerHeld answers with what v returns while lock is held. No answer may be written then: a client that does not read it would
// stop all others.
func answerHeld(w http.ResponseWriter, status int, lock sync.Locker, v func() (any, error)) error {
	lock.Lock()
	value, err := v()
	var raw json.RawMessage
	if err == nil {
		raw, err = json.Marshal(value)
	}
	lock.Unlock()
	if err != nil {
		return err
	}
	return answer(w, status, raw)
}

// done answers without a body.
func done(w http.ResponseWriter) error {
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// read decodes the body of a request. An empty body is the zero value.
func read(r *http.Request, v any) error {
	err := json.NewDecoder(r.Body).Decode(v)
	if err == nil || err == io.EOF {
		return nil
	}
	var big *http.MaxBytesError
	if errors.As(err, &big) {
		return err
	}
	return fail(http.StatusBadRequest, "invalid JSON: %v", err)
}

// isOn reports whether a parameter is true, as Docker reads it.
func isOn(r *http.Request, name string) bool {
	switch strings.ToLower(strings.TrimSpace(r.URL.Query().Get(name))) {
	case "", "0", "no", "false", "none":
		return false
	}
	return true
}

// filters are the conditions of a list, by their names. Docker has two forms: lists, and older maps.
type filters map[string][]string

func filtersOf(r *http.Request) (filters, error) {
	raw := r.URL.Query().Get("filters")
	if raw == "" {
		return nil, nil
	}
	var lists filters
	if json.Unmarshal([]byte(raw), &lists) == nil {
		return lists, nil
	}
	var maps map[string]map[string]bool
	if err := json.Unmarshal([]byte(raw), &maps); err != nil {
		return nil, fail(http.StatusBadRequest, "invalid filters: %v", err)
	}
	lists = filters{}
	for name, values := range maps {
		for v, on := range values {
			if on {
				lists[name] = append(lists[name], v)
			}
		}
	}
	return lists, nil
}

// any reports whether a condition holds for one of its values. A condition that was not asked holds.
func (f filters) any(name string, holds func(value string) bool) bool {
	values, asked := f[name]
	for _, v := range values {
		if holds(v) {
			return true
		}
	}
	return !asked || len(values) == 0
}

// labels reports whether all conditions about labels hold.
func (f filters) labels(labels map[string]string) bool {
	for _, want := range f["label"] {
		name, value, valued := strings.Cut(want, "=")
		if got, has := labels[name]; !has || valued && got != value {
			return false
		}
	}
	return true
}
