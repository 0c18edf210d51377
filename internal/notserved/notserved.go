// Package notserved tells a path that no route serves from a method that the path's routes do not have. It asks muxes for
// the routes of other methods, and so needs no table of its own.
package notserved

import (
	"net/http"
	"slices"
	"strings"
)

// methods are those that a route may have.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// Status returns the status of the answer to a request that only patterns without a method serve, and its text. If other methods
// of the path have routes in one of muxes, it sets Allow. A mux may be nil.
func Status(w http.ResponseWriter, r *http.Request, muxes ...*http.ServeMux) (status int, text string) {
	text = "demesne does not serve " + r.Method + " " + r.URL.Path
	var allow []string
	for _, method := range methods {
		other := *r
		other.Method = method
		if method != r.Method && slices.ContainsFunc(muxes, func(m *http.ServeMux) bool { return serves(m, &other) }) {
			allow = append(allow, method)
		}
	}
	if len(allow) == 0 {
		return http.StatusNotFound, text
	}
	w.Header().Set("Allow", strings.Join(allow, ", "))
	return http.StatusMethodNotAllowed, text
}

// serves reports whether m has a route for the method of a request.
func serves(m *http.ServeMux, r *http.Request) bool {
	if m == nil {
		return false
	}
	_, pattern := m.Handler(r)
	return strings.Contains(pattern, " ")
}
