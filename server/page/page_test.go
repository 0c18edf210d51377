package page

import (
	"bytes"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"demesne/server"
)

func newPage(t *testing.T) *Page {
	t.Helper()
	p, err := New(&server.Access{Token: "e2b_0123456789abcdef"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPolicies checks the policy of each file. Only documents of frames, which have an opaque origin, allow more than the
// page's own policy.
func TestPolicies(t *testing.T) {
	p := newPage(t)
	for name := range p.files {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest("GET", Root+name, nil))
		policy := w.Header().Get("Content-Security-Policy")
		frame := strings.HasPrefix(name, "frame/") && strings.HasSuffix(name, ".html")
		switch {
		case w.Code != 200 || w.Header().Get("X-Content-Type-Options") != "nosniff":
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		case !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "base-uri 'none'"):
			t.Errorf("%s: %s", name, policy)
		case frame && (!strings.Contains(policy, "sandbox allow-scripts;") || strings.Contains(policy, "connect-src")):
			t.Errorf("%s: %s", name, policy)
		case !frame && (strings.Contains(policy, "unsafe") || !strings.Contains(policy, "require-trusted-types-for 'script'; trusted-types 'none'")):
			t.Errorf("%s: %s", name, policy)
		}
		if name != "frame/live.html" && strings.Contains(policy, "script-src 'unsafe") {
			t.Errorf("%s runs any script: %s", name, policy)
		}
	}
}

// TestNoMarkup checks that no script of the page's own uses what parses HTML or evaluates text.
func TestNoMarkup(t *testing.T) {
	parses := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|setHTML|\beval\(|new Function|setTimeout\("|srcdoc`)
	scripts := 0
	for name, f := range newPage(t).files {
		if !strings.HasSuffix(name, ".js") || strings.HasPrefix(name, "vendor/") {
			continue
		}
		scripts++
		body := f.body
		if name == "frame/still.js" { // in a frame without rights, it parses an output in order to clean it
			body = bytes.Replace(body, []byte("new DOMParser()"), nil, 1)
		}
		if found := parses.Find(body); found != nil {
			t.Errorf("%s has %s", name, found)
		}
	}
	if scripts < 10 {
		t.Errorf("only %d scripts", scripts)
	}
}

// TestLoginRequests checks what logs in: JSON from the page's own origin with a valid token.
func TestLoginRequests(t *testing.T) {
	p := newPage(t)
	for _, c := range []struct {
		body, kind, origin string
		want               int
	}{
		{`{"token":"e2b_0123456789abcdef"}`, "application/json", "http://example.com", 200},
		{`{"token":" e2b_0123456789abcdef\n"}`, "application/json; charset=utf-8", "http://example.com", 200},
		{`{"token":"wrong"}`, "application/json", "http://example.com", 401},
		{`{"token":""}`, "application/json", "http://example.com", 401},
		{`{"token":"e2b_0123456789abcdef"}`, "application/json", "http://example.com:81", 401},
		{`{"token":"e2b_0123456789abcdef"}`, "application/json", "null", 401},
		{`{"token":"e2b_0123456789abcdef"}`, "text/plain", "http://example.com", 403},
		{`{"token":7}`, "application/json", "http://example.com", 400},
		{`{"token":"` + strings.Repeat("x", maxLoginBody) + `"}`, "application/json", "http://example.com", 400},
	} {
		r := httptest.NewRequest("POST", Root+"login", strings.NewReader(c.body))
		r.Header.Set("Content-Type", c.kind)
		r.Header.Set("Origin", c.origin)
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, r); w.Code != c.want || (len(w.Result().Cookies()) > 0) != (c.want == 200) {
			t.Errorf("%.60s %s %s: %d %v", c.body, c.kind, c.origin, w.Code, w.Result().Cookies())
		}
	}
	for path, want := range map[string]int{"/": 302, Root: 200, Root + "session": 401, Root + "none": 404, Root + "../session.go": 307, Root + "frame": 404} {
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, httptest.NewRequest("GET", path, nil)); w.Code != want {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}
