// Package notserved tells a path that no route serves from a method that the path's routes do not have. It asks the mux for
// the routes of other methods, and so needs no table of its own.
package notserved

import (
	"net/http"
	"strings"
)

// methods are those that a route may have.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// Status returns the status of the answer to a request that only the pattern "/" of m serves, and its text. If other methods
// of the path have routes, it sets Allow.
func Status(w http.ResponseWriter, r *http.Request, m *http.ServeMux) (status int, text string) {
	text = "demesne does not serve " + r.Method + " " + r.URL.Path
	var allow []string
	for _, method := range methods {
		other := *r
		other.Method = method
		if _, pattern := m.Handler(&other); method != r.Method && pattern != "" && pattern != "/" {
			allow = append(allow, method)
		}
	}
	if len(allow) == 0 {
		return http.StatusNotFound, text
	}
	w.Header().Set("Allow", strings.Join(allow, ", "))
	return http.StatusMethodNotAllowed, text
}
