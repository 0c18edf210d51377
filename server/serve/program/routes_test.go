package program

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"demesne/server"
	"demesne/server/serve/settings"
	"demesne/server/servecmd"
	"demesne/session"
)

// testProgram returns a server with all its APIs, which has made no sandbox.
func testProgram(t *testing.T, o *servecmd.Options) *program {
	t.Helper()
	dir := t.TempDir()
	for name, value := range map[string]string{
		"HOME": dir, "XDG_RUNTIME_DIR": dir, "DEMESNE_STATE": dir + "/state", "DEMESNE_OUTPUT_ROOT": dir + "/out",
		"DEMESNE_SANDBOX_ROOT": dir + "/sandboxes", "DEMESNE_IMAGE_STORE": dir + "/images", "DEMESNE_LIBEXEC": dir,
	} {
		t.Setenv(name, value)
	}
	for _, program := range []string{"demesne-frontend", "demesne-runner", "demesne-init", "demesne-proxy"} {
		if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/false\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	state, err := settings.StateDir()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{options: o, state: state, domain: "localhost:7480", mux: &router{ServeMux: http.NewServeMux()}, log: log.New(io.Discard, "", 0)}
	if p.access, err = settings.Callers(o, state); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	if err := p.openOperate(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.operate.Close)
	if err := p.openBackends(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.backend.Close)
	if p.mine, err = p.backend.Of(""); err != nil {
		t.Fatal(err)
	}
	if err := p.open(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p
}

// ask sends a request to a program, with headers "Name: value".
func (p *program) ask(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, method, "http://localhost:7480"+path, strings.NewReader(body))
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	server.Guard{Domain: p.domain, Origins: p.options.Origins}.Handler(p).ServeHTTP(w, r)
	return w
}

// openRoutes answer without a token. What they say is the same for every caller: the files of the page and of the page of
// the OpenAPI document, and the document.
var openRoutes = []string{"GET /{$}", "/page/", "GET /docs", "GET /docs/", "GET /v1/openapi.json", "GET /ready", "OPTIONS /mcp", "OPTIONS /mcp/", "OPTIONS /artifacts/"}

// routes returns every method and path that the program serves, with "x" for each variable.
func (p *program) routes(t *testing.T) (all [][2]string) {
	t.Helper()
	for _, pattern := range p.mux.patterns {
		if slices.Contains(openRoutes, pattern) {
			continue
		}
		method, path, found := strings.Cut(pattern, " ")
		methods := []string{method}
		if !found {
			path, methods = method, []string{"POST", "PUT", "PATCH", "DELETE"}
			if path != "/" { // GET / leads to the page
				methods = append(methods, "GET", "HEAD")
			}
		}
		for _, m := range methods {
			all = append(all, [2]string{m, plain(path)})
		}
	}
	w := p.ask("GET", "/v1/openapi.json", "") // a generator of clients sends no token
	var document struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil || len(document.Paths) < 20 {
		t.Fatalf("the OpenAPI document: %d %d paths, %v", w.Code, len(document.Paths), err)
	}
	for path, methods := range document.Paths {
		for m := range methods {
			all = append(all, [2]string{strings.ToUpper(m), plain(path)})
		}
	}
	for _, path := range []string{
		"/sandboxes", "/v2/sandboxes", "/sandboxes/x", "/sandboxes/x/connect", "/sandboxes/x/logs", "/snapshots", "/secrets", "/secrets/x", "/volumes", "/volumes/x",
		"/templates", "/v3/templates", "/templates/x/files/y", "/volumecontent/x/file", "/templatefiles/x/y/z", "/files?signature=v1_x&path=/a", "/no/such/route",
		"/metrics", "/v1/no", "/v1/openapi.yaml", "/mcp/", "/artifacts/",
	} {
		for _, m := range []string{"GET", "POST", "DELETE"} {
			all = append(all, [2]string{m, path})
		}
	}
	return all
}

// plain replaces the variables of a pattern.
func plain(path string) string {
	var out []string
	for part := range strings.SplitSeq(path, "/") {
		if strings.HasPrefix(part, "{") {
			part = "x"
		}
		out = append(out, part)
	}
	return strings.Join(out, "/")
}

// TestRoutesNeedToken walks every route without a token, with a wrong one, and with one of a header that does not count.
// Only the routes of openRoutes and the health checks answer.
func TestRoutesNeedToken(t *testing.T) {
	p := testProgram(t, &servecmd.Options{})
	expired, err := p.access.Tokens.Add("team", "", time.Nanosecond)
	if err != nil {
		t.Fatal(err)
	}
	removed, err := p.access.Tokens.Add("team", "removed", 0)
	if err == nil {
		err = p.access.Tokens.Remove("removed")
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, err := p.access.Of(expired); err == nil; _, err = p.access.Of(expired) { // times of the file are whole seconds
		time.Sleep(10 * time.Millisecond)
	}
	key := p.access.Token
	routes := p.routes(t)
	for _, r := range routes {
		for _, headers := range [][]string{
			nil, {"X-API-KEY: wrong"}, {"Authorization: Bearer e2b_wrong"}, {"Authorization: Basic " + key}, {"X-API-KEY: " + expired}, {"X-API-KEY: " + removed},
			{"Demesne-Namespace: team"}, {"Cookie: demesne-7480=" + key}, {"X-Access-Token: " + key}, {"E2b-Traffic-Access-Token: " + key},
		} {
			w := p.ask(r[0], r[1], "{}", append(slices.Clone(headers), "Content-Type: application/json")...)
			if w.Code != http.StatusUnauthorized {
				t.Errorf("%s %s with %.40q: %d %.100s", r[0], r[1], headers, w.Code, w.Body)
			}
		}
	}
	t.Logf("%d routes", len(routes))
	for _, target := range []string{"49983", "49999", "3000", "x", ""} { // a sandbox that does not exist
		for _, r := range routes {
			if w := p.ask(r[0], r[1], "{}", "E2b-Sandbox-Id: x", "E2b-Sandbox-Port: "+target, "X-API-KEY: "+key); w.Code != http.StatusBadGateway {
				t.Errorf("%s %s of port %q: %d %.100s", r[0], r[1], target, w.Code, w.Body)
			}
		}
	}
	for _, path := range []string{"/health", "/ready", "/page/", "/docs"} {
		if w := p.ask("GET", path, ""); w.Code >= 300 && w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), key) {
			t.Errorf("%s: %d %.100s", path, w.Code, w.Body)
		}
	}
}

// TestRoutesErrors walks every route as the operator, with a body that fits none, and other methods of them. No answer has a
// null for data, E2B's errors have none, and the answer to a method that no route has names those that one has.
func TestRoutesErrors(t *testing.T) {
	p := testProgram(t, &servecmd.Options{})
	headers := []string{"X-API-KEY: " + p.access.Token, "Content-Type: application/json"}
	for _, r := range p.routes(t) {
		for _, body := range []string{"[", `{"x":1}`} {
			w := p.ask(r[0], r[1]+"?limit=x", body, headers...)
			e2b := !strings.HasPrefix(r[1], "/v1") && !strings.HasPrefix(r[1], "/mcp")
			if text := w.Body.String(); strings.Contains(text, `"data":null`) || e2b && w.Code >= 400 && strings.Contains(text, `"data"`) {
				t.Errorf("%s %s %s: %d %.200s", r[0], r[1], body, w.Code, text)
			}
		}
	}
	for call, allow := range map[string]string{
		"PUT /v1/events": "GET, HEAD", "POST /v1/audit": "GET, HEAD", "DELETE /v1/openapi.json": "GET, HEAD", "PATCH /v1/sandboxes": "GET, HEAD, POST",
		"POST /ready": "GET, HEAD", "DELETE /metrics": "GET, HEAD", "POST /docs": "GET, HEAD", "PATCH /sandboxes/x": "GET, HEAD, DELETE", "DELETE /v2/sandboxes": "GET, HEAD, POST",
	} {
		method, path, _ := strings.Cut(call, " ")
		if w := p.ask(method, path, "{}", headers...); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != allow {
			t.Errorf("%s: %d, Allow %q, not %q: %.200s", call, w.Code, w.Header().Get("Allow"), allow, w.Body)
		}
	}
}

// TestRoutesForeignPages walks every route as the page of another site would.
func TestRoutesForeignPages(t *testing.T) {
	p := testProgram(t, &servecmd.Options{Access: servecmd.Access{Origins: []string{"https://app.example.com"}}})
	auth := "X-API-KEY: " + p.access.Token
	for _, r := range p.routes(t) {
		for _, origin := range []string{"https://evil.test", "null", "https://app.example.com.evil.test", "http://app.example.com", "https://app.example.com:8443"} {
			w := p.ask(r[0], r[1], "{}", auth, "Origin: "+origin)
			if w.Code != http.StatusForbidden || w.Header().Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s %s from %q: %d %v", r[0], r[1], origin, w.Code, w.Header())
			}
		}
		w := p.ask("OPTIONS", r[1], "", "Origin: https://app.example.com", "Access-Control-Request-Method: "+r[0], "Access-Control-Request-Headers: authorization")
		h := w.Header()
		if w.Code != http.StatusNoContent || h.Get("Access-Control-Allow-Origin") != "https://app.example.com" || h.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("preflight for %s %s: %d %v", r[0], r[1], w.Code, h)
		}
		if w := p.ask(r[0], r[1], "{}", "Origin: https://app.example.com"); w.Code != http.StatusUnauthorized {
			t.Errorf("%s %s from a listed page, without a token: %d", r[0], r[1], w.Code)
		}
	}
	if w := p.ask("GET", "/v1/queue", "", "Origin: https://app.example.com", auth); w.Code != http.StatusOK || w.Header().Get("Access-Control-Allow-Origin") == "" {
		t.Errorf("a listed page: %d %v", w.Code, w.Header())
	}
}

// TestRate checks that the requests of a namespace are bounded, and others' are not.
func TestRate(t *testing.T) {
	o := &servecmd.Options{Namespaces: map[string]session.Bounds{"slow": {Rate: 1}}}
	p := testProgram(t, o)
	codes := map[string][]int{}
	for _, ns := range []string{"slow", "fast"} {
		token, err := p.access.Tokens.Add(ns, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/v1/queue", "/v2/sandboxes", "/v1/queue", "/v2/sandboxes"} {
			codes[ns] = append(codes[ns], p.ask("GET", path, "", "X-API-KEY: "+token).Code)
		}
	}
	if !slices.Equal(codes["slow"], []int{200, 200, 429, 429}) || !slices.Equal(codes["fast"], []int{200, 200, 200, 200}) {
		t.Errorf("%v", codes)
	}
}

// TestMaxBody checks the operator's bound of bodies.
func TestMaxBody(t *testing.T) {
	p := testProgram(t, &servecmd.Options{Access: servecmd.Access{MaxBody: 1000}})
	auth, body := []string{"X-API-KEY: " + p.access.Token, "Content-Type: application/json"}, `{"name":"`+strings.Repeat("x", 2000)+`"}`
	for _, path := range []string{"/v1/sandboxes", "/secrets", "/v2/sandboxes"} {
		if w := p.ask("POST", path, body, auth...); w.Code != http.StatusRequestEntityTooLarge || !strings.Contains(w.Body.String(), "more than 1000 bytes") {
			t.Errorf("%s: %d %.200s", path, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/secrets", "/v1/sandboxes", "/v2/sandboxes", "/volumes", "/v3/templates"} { // a body of unknown length
		r := httptest.NewRequest("POST", path, struct{ io.Reader }{strings.NewReader(body)})
		r.Host = "localhost"
		r.Header.Set("X-API-KEY", p.access.Token)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, r); w.Code != http.StatusRequestEntityTooLarge || !strings.Contains(w.Body.String(), "more than 1000 bytes") {
			t.Errorf("%s in chunks: %d %.200s", path, w.Code, w.Body)
		}
	}
}
