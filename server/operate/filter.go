package operate

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"demesne/server"
	"demesne/session/audit"
	"demesne/session/events"
)

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
