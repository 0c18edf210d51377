package server

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestNotServed checks that a path with a route of another method is answered with 405 and the methods that it has, and any
// other path with 404.
func TestNotServed(t *testing.T) {
	m, beside := http.NewServeMux(), http.NewServeMux()
	for _, pattern := range []string{"GET /a", "DELETE /a", "POST /b/{id}", "/{$}"} {
		m.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	}
	m.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		status, text := NotServed(w, r, m, beside, nil)
		http.Error(w, text, status)
	})
	beside.HandleFunc("GET /c", func(http.ResponseWriter, *http.Request) {})
	beside.HandleFunc("/d/", func(http.ResponseWriter, *http.Request) {})
	for _, c := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/a", 200, ""}, {"HEAD", "/a", 200, ""}, {"POST", "/a", 405, "GET, HEAD, DELETE"}, {"TRACE", "/a", 405, "GET, HEAD, DELETE"},
		{"GET", "/b/x", 405, "POST"}, {"GET", "/b", 404, ""}, {"GET", "/b/x/y", 404, ""}, {"POST", "/a/", 404, ""}, {"POST", "/", 200, ""},
		{"DELETE", "/c", 405, "GET, HEAD"}, {"DELETE", "/d/x", 404, ""}, // another handler's, whatever the method
	} {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		want := ""
		if c.status != http.StatusOK {
			want = "demesne does not serve " + c.method + " " + c.path + "\n"
		}
		if body := w.Body.String(); w.Code != c.status || w.Header().Get("Allow") != c.allow || body != want {
			t.Errorf("%s %s: %d, Allow %q, %s", c.method, c.path, w.Code, w.Header().Get("Allow"), body)
		}
	}
}
