package operate

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"demesne/server"
	"demesne/session/audit"
	"demesne/session/events"
)

// Bounds of one answer.
const (
	entriesUsual = 100
	maxEntries   = 1000
)

// entries answers with entries of the audit log: those after a number, the oldest first, or the newest ones.
func (op *Operator) entries(w http.ResponseWriter, r *http.Request) {
	f, q, err := filterOf(r, "limit")
	limit, wrong := number(q, "limit", entriesUsual)
	if err == nil {
		err = wrong
	}
	if err == nil && (limit < 1 || limit > maxEntries) {
		err = fmt.Errorf("parameter \"limit\": not from 1 to %d", maxEntries)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	var all []audit.Entry
	err = audit.Read(r.Context(), op.opts.Dir, f, func(e audit.Entry) bool {
		if all = append(all, e); len(all) > 2*maxEntries {
			all = append([]audit.Entry(nil), all[len(all)-maxEntries:]...)
		}
		return !q.Has("after") || len(all) < int(limit)
	})
	if err != nil {
		op.opts.Log.Print(err)
		refuse(w, http.StatusInternalServerError, "the audit log cannot be read")
		return
	}
	answer(w, http.StatusOK, struct {
		Entries []audit.Entry `json:"entries"`
	}{append([]audit.Entry{}, all[max(0, len(all)-int(limit)):]...)})
}

// verify answers with the state of the chain. mark is ID:SHA256 of an entry that the caller remembers.
func (op *Operator) verify(w http.ResponseWriter, r *http.Request) {
	marks := map[uint64]string{}
	if v := r.URL.Query().Get("mark"); v != "" {
		id, sum, ok := strings.Cut(v, ":")
		n, err := strconv.ParseUint(id, 10, 64)
		if !ok || err != nil {
			refuse(w, http.StatusBadRequest, "parameter \"mark\": not ID:SHA256")
			return
		}
		marks[n] = sum
	}
	report, err := audit.Verify(r.Context(), op.opts.Dir, marks)
	if err != nil {
		op.opts.Log.Print(err)
		refuse(w, http.StatusInternalServerError, "the audit log cannot be read")
		return
	}
	answer(w, http.StatusOK, report)
}

// refuse answers with an error in the shape of /v1.
func refuse(w http.ResponseWriter, status int, text string) {
	answer(w, status, struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    []int  `json:"data"`
	}{status, text, []int{}})
}

func answer(w http.ResponseWriter, status int, what any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(what)
}

// filterOf returns the filter that a request asks for, within what its caller may see. Unknown parameters are errors.
func filterOf(r *http.Request, also ...string) (f audit.Filter, q url.Values, err error) {
	q = r.URL.Query()
	for name, values := range q {
		if !slices.Contains(append(also, "after", "type", "sandbox", "namespace", "since"), name) {
			return f, q, fmt.Errorf("parameter %q: unknown", name)
		}
		if len(values) != 1 || len(values[0]) > 256 {
			return f, q, fmt.Errorf("parameter %q: not one short value", name)
		}
	}
	f.Type, f.Sandbox = events.Type(q.Get("type")), q.Get("sandbox")
	if f.After, err = number(q, "after", 0); err != nil {
		return f, q, err
	}
	if v := q.Get("since"); v != "" {
		if f.Since, err = time.Parse(time.RFC3339, v); err != nil {
			return f, q, fmt.Errorf("parameter \"since\": not a time such as 2006-01-02T15:04:05Z")
		}
	}
	c := server.CallerOf(r.Context())
	switch {
	case !c.Operator && q.Has("namespace") && q.Get("namespace") != c.Namespace:
		return f, q, fmt.Errorf("parameter \"namespace\": not this caller's")
	case !c.Operator:
		f.Namespace = &c.Namespace
	case q.Has("namespace"):
		one := q.Get("namespace")
		f.Namespace = &one
	}
	return f, q, nil
}

// number returns a parameter's value.
func number(q url.Values, name string, fallback uint64) (uint64, error) {
	v := q.Get(name)
	if v == "" {
		return fallback, nil
	}
	n, err := strconv.ParseUint(v, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("parameter %q: not a number", name)
	}
	return n, nil
}
