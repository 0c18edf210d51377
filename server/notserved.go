package server

import (
	"net/http"
	"slices"
	"strings"
)

// routeMethods are those that a route may have.
var routeMethods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// NotServed returns the status of the answer to a request that only patterns without a method serve, and its text. It asks the muxes, and needs no table of its own. If other methods
// of the path have routes in one of muxes, it sets Allow. A mux may be nil.
func NotServed(w http.ResponseWriter, r *http.Request, muxes ...*http.ServeMux) (status int, text string) {
	text = "demesne does not serve " + r.Method + " " + r.URL.Path
	var allow []string
	for _, method := range routeMethods {
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
