package server

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const operatorToken = "e2b_operatoroperator"

func newAccess(t *testing.T) *Access {
	return &Access{Token: operatorToken, Tokens: OpenTokens(t.TempDir())}
}

// request returns a request with headers "Name: value".
func request(method string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, "http://localhost:7480/v1/sandboxes", nil)
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		r.Header.Add(k, v)
	}
	return r
}

func TestCaller(t *testing.T) {
	a := newAccess(t)
	token, err := a.Tokens.Add("team", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		headers []string
		want    Caller
	}{
		{[]string{"Authorization: Bearer " + operatorToken}, Operator},
		{[]string{"authorization: bearer  " + operatorToken}, Operator},
		{[]string{"X-API-KEY: " + operatorToken}, Operator},
		{[]string{"X-API-KEY: " + token}, Caller{Name: "team", Namespace: "team"}},
		{[]string{"X-API-KEY: " + operatorToken, namespaceHeader + ": team"}, Caller{Name: "operator", Namespace: "team"}},
		{[]string{"X-API-KEY: " + token, namespaceHeader + ": other"}, Caller{Name: "team", Namespace: "team"}},
		{nil, Caller{}},
		{[]string{"X-API-KEY: "}, Caller{}},
		{[]string{"Authorization: Bearer"}, Caller{}},
		{[]string{"Authorization: Basic " + operatorToken}, Caller{}},
		{[]string{"X-API-KEY: " + operatorToken + "x"}, Caller{}},
		{[]string{"X-API-KEY: " + hashOf(token)}, Caller{}},
		{[]string{"X-API-KEY: " + strings.Repeat("a", 1<<20)}, Caller{}},
		{[]string{"X-API-KEY: " + operatorToken, namespaceHeader + ": ../x"}, Caller{}},
	} {
		got, err := a.Caller(request("GET", c.headers...))
		if got != c.want || (err == nil) != (c.want != Caller{}) {
			t.Errorf("%.80q: %+v %v", c.headers, got, err)
		}
	}
}

func TestTokens(t *testing.T) {
	dir := t.TempDir()
	a := &Access{Token: operatorToken, Tokens: OpenTokens(dir)}
	other := OpenTokens(dir) // of another process
	if _, err := a.Of("e2b_unknown"); err == nil {
		t.Error("an unknown token is accepted")
	}
	token, err := other.Add("team", "ci", 0)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := a.Of(token); err != nil || c != (Caller{Name: "ci", Namespace: "team"}) {
		t.Errorf("a token that was made meanwhile: %+v %v", c, err)
	}
	for _, bad := range []struct{ namespace, name string }{{"team", "ci"}, {"default", ""}, {"", ""}, {"A", ""}, {"a@b", ""}, {"team", "a/b"}} {
		if _, err := other.Add(bad.namespace, bad.name, 0); err == nil {
			t.Errorf("%+v: was added", bad)
		}
	}
	short, err := other.Add("team", "short", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "tokens.json")); err != nil || strings.Contains(string(b), token) || !strings.Contains(string(b), hashOf(token)) {
		t.Errorf("the file: %v\n%s", err, b)
	}
	if st, err := os.Stat(filepath.Join(dir, "tokens.json")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode: %v %v", st, err)
	}
	if err := other.Remove("ci"); err != nil || other.Remove("ci") != ErrNoToken {
		t.Errorf("remove: %v", err)
	}
	if c, err := a.Of(token); err == nil {
		t.Errorf("a removed token: %+v", c)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c, err := a.Of(short)
		if err != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("an expired token: %+v", c)
		}
	}
	os.Chmod(filepath.Join(dir, "tokens.json"), 0o644)
	if c, err := a.Of(short); err == nil {
		t.Errorf("a file that others can read: %+v", c)
	}
}

// signed returns a JWT.
func signed(t *testing.T, m jwt.SigningMethod, key any, claims jwt.MapClaims) string {
	s, err := jwt.NewWithClaims(m, claims).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestJWT(t *testing.T) {
	key := []byte(strings.Repeat("k", 64))
	file := filepath.Join(t.TempDir(), "key")
	os.WriteFile(file, append(key, '\n'), 0o600)
	j, err := ReadJWT(file, JWTOptions{Audience: "demesne", Issuer: "https://id.test"})
	if err != nil {
		t.Fatal(err)
	}
	a := newAccess(t)
	a.JWT = j
	claims := func(change func(jwt.MapClaims)) jwt.MapClaims {
		c := jwt.MapClaims{
			"sub": "ann@example.com", "namespace": "team", "exp": time.Now().Add(time.Hour).Unix(), "aud": "demesne", "iss": "https://id.test",
		}
		if change != nil {
			change(c)
		}
		return c
	}
	for _, m := range []jwt.SigningMethod{jwt.SigningMethodHS256, jwt.SigningMethodHS384, jwt.SigningMethodHS512} {
		c, err := a.Of(signed(t, m, key, claims(nil)))
		if err != nil || c != (Caller{Name: "ann@example.com", Namespace: "team"}) {
			t.Errorf("%s: %+v %v", m.Alg(), c, err)
		}
	}
	for name, bad := range map[string]string{
		"another key":      signed(t, jwt.SigningMethodHS256, []byte("other"), claims(nil)),
		"no signature":     signed(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims(nil)),
		"expired":          signed(t, jwt.SigningMethodHS256, key, claims(func(c jwt.MapClaims) { c["exp"] = time.Now().Add(-time.Minute).Unix() })),
		"no end":           signed(t, jwt.SigningMethodHS256, key, claims(func(c jwt.MapClaims) { delete(c, "exp") })),
		"not yet":          signed(t, jwt.SigningMethodHS256, key, claims(func(c jwt.MapClaims) { c["nbf"] = time.Now().Add(time.Hour).Unix() })),
		"another audience": signed(t, jwt.SigningMethodHS256, key, claims(func(c jwt.MapClaims) { c["aud"] = "other" })),
		"another issuer":   signed(t, jwt.SigningMethodHS256, key, claims(func(c jwt.MapClaims) { c["iss"] = "other" })),
		"no namespace":     signed(t, jwt.SigningMethodHS256, key, claims(func(c jwt.MapClaims) { delete(c, "namespace") })),
		"no such name":     signed(t, jwt.SigningMethodHS256, key, claims(func(c jwt.MapClaims) { c["namespace"] = "../x" })),
		"the default":      signed(t, jwt.SigningMethodHS256, key, claims(func(c jwt.MapClaims) { c["namespace"] = "default" })),
		"critical": func() string {
			t := jwt.NewWithClaims(jwt.SigningMethodHS256, claims(nil))
			t.Header["crit"] = []string{"exp"}
			s, _ := t.SignedString(key)
			return s
		}(),
		"critical null": func() string {
			t := jwt.NewWithClaims(jwt.SigningMethodHS256, claims(nil))
			t.Header["crit"] = nil
			s, _ := t.SignedString(key)
			return s
		}(),
		"an operator": signed(t, jwt.SigningMethodHS256, key, claims(func(c jwt.MapClaims) { c["namespace"], c["operator"] = "", true })),
	} {
		if c, err := a.Of(bad); err == nil {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if c, err := a.Of(signed(t, jwt.SigningMethodHS256, key, claims(func(c jwt.MapClaims) { c["sub"] = "a\nb" }))); err != nil || c.Name != "jwt" {
		t.Errorf("a subject with a line break: %+v %v", c, err)
	}
	for _, bad := range []struct {
		key string
		o   JWTOptions
	}{{strings.Repeat("k", 31), JWTOptions{}}, {strings.Repeat("k", 40), JWTOptions{Algorithm: "HS384"}}, {string(key), JWTOptions{Algorithm: "none"}}, {string(key), JWTOptions{Algorithm: "RS256"}}} {
		if _, err := newJWT([]byte(bad.key), bad.o); err == nil {
			t.Errorf("%d bytes for %q: accepted", len(bad.key), bad.o.Algorithm)
		}
	}
	short, err := newJWT(key[:40], JWTOptions{})
	if err != nil {
		t.Fatal(err)
	}
	a.JWT = short
	if c, err := a.Of(signed(t, jwt.SigningMethodHS512, key[:40], jwt.MapClaims{"namespace": "team", "exp": time.Now().Add(time.Hour).Unix()})); err == nil {
		t.Errorf("HS512 with a key of 40 bytes: %+v", c)
	}
}

func TestLogin(t *testing.T) {
	a := newAccess(t)
	token, err := a.Tokens.Add("team", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	page := []string{"Origin: http://localhost:7480", "Sec-Fetch-Site: same-origin"}
	w := httptest.NewRecorder()
	if _, _, err := a.Login(w, request("POST", page...), "wrong"); err == nil || len(w.Result().Cookies()) != 0 {
		t.Error("a wrong token gets a cookie")
	}
	if _, _, err := a.Login(w, request("POST", "Origin: http://evil.test"), token); err == nil {
		t.Error("a foreign page logs the browser in")
	}
	w = httptest.NewRecorder()
	c, half, err := a.Login(w, request("POST", page...), token)
	if err != nil || c.Namespace != "team" {
		t.Fatalf("%+v %v", c, err)
	}
	cookie := w.Result().Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || strings.Contains(cookie.Value, token) {
		t.Errorf("%+v", cookie)
	}
	only := "Cookie: " + cookie.Name + "=" + cookie.Value
	if _, err := a.Caller(request("GET", only)); err == nil {
		t.Error("the cookie alone is a login: each server of this host receives it")
	}
	if _, err := a.Caller(request("GET", only, halfHeader+": "+half[:len(half)-1])); err == nil {
		t.Error("a part of the other half")
	}
	socket := request("GET", append([]string{"Upgrade: websocket", only}, page...)...)
	socket.URL.RawQuery = halfQuery + "=" + half
	if _, err := a.Caller(socket); err != nil {
		t.Errorf("the half in a WebSocket's address: %v", err)
	}
	document := request("GET", only)
	document.URL.Path = "/docs"
	if _, err := a.Caller(document); err != nil {
		t.Errorf("the API's documents: %v", err)
	}
	in, other := only, halfHeader+": "+half
	for _, c := range []struct {
		method  string
		headers []string
		ok      bool
	}{
		{"GET", nil, true},
		{"GET", []string{"Sec-Fetch-Site: none"}, true},
		{"POST", page, true},
		{"POST", page[:1], true},
		{"POST", nil, false}, // every browser says where a POST is from
		{"POST", []string{"Sec-Fetch-Site: none"}, false},
		{"DELETE", []string{"Origin: http://localhost:8000"}, false}, // another server on this machine: the same site
		{"GET", []string{"Sec-Fetch-Site: same-site"}, false},
		{"GET", []string{"Sec-Fetch-Site: cross-site"}, false},
		{"GET", []string{"Origin: http://localhost:8000"}, false},
		{"POST", []string{"Origin: null"}, false},
		{"GET", []string{"Upgrade: websocket"}, false},
		{"GET", append([]string{"Upgrade: websocket"}, page...), true},
		{"GET", []string{"Authorization: Bearer wrong"}, false}, // a valid cookie does not replace the token
	} {
		if got, err := a.Caller(request(c.method, slices.Concat(c.headers, []string{in, other})...)); (err == nil) != c.ok || c.ok && got.Namespace != "team" {
			t.Errorf("%s %v: %+v %v", c.method, c.headers, got, err)
		}
	}
	tossed := "Cookie: " + cookie.Name + "=of-a-sandbox; " + strings.TrimPrefix(in, "Cookie: ")
	if _, err := a.Caller(request("GET", tossed, other)); err != nil {
		t.Errorf("the cookie of a sandbox's page hides the login: %v", err)
	}
	if err := a.Tokens.Remove("team"); err != nil {
		t.Fatal(err)
	}
	if c, err := a.Caller(request("GET", in, other)); err == nil {
		t.Errorf("the login outlives its token: %+v", c)
	}
	w = httptest.NewRecorder()
	_, half, _ = a.Login(w, request("POST", page...), operatorToken)
	in = "Cookie: " + cookie.Name + "=" + w.Result().Cookies()[0].Value
	a.Logout(httptest.NewRecorder(), request("POST", slices.Concat(page, []string{in})...))
	if c, err := a.Caller(request("GET", in, halfHeader+": "+half)); err == nil {
		t.Errorf("a login that has ended: %+v", c)
	}
}

func TestStrip(t *testing.T) {
	a := newAccess(t)
	h := http.Header{}
	for _, c := range [][2]string{{"X-Api-Key", "anything"}, {"Authorization", "Bearer " + operatorToken}, {"Cookie", loginCookie + "=x; theirs=1"}, {"Accept", "text/html"}} {
		h.Add(c[0], c[1])
	}
	a.Strip(h)
	if h.Get("X-Api-Key")+h.Get("Authorization") != "" || h.Get("Cookie") != "theirs=1" || h.Get("Accept") == "" {
		t.Errorf("%v", h)
	}
	h = http.Header{"Authorization": {"Bearer of-the-program"}, "Cookie": {loginCookie + "=x"}}
	a.Strip(h)
	if h.Get("Authorization") == "" || h["Cookie"] != nil {
		t.Errorf("%v", h)
	}
}

// FuzzJWT checks that only a signed token has a caller.
func FuzzJWT(f *testing.F) {
	j, err := newJWT([]byte(strings.Repeat("k", 64)), JWTOptions{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("eyJhbGciOiJub25lIn0.eyJuYW1lc3BhY2UiOiJhIiwiZXhwIjo5OTk5OTk5OTk5fQ.")
	f.Add("eyJhbGciOiJIUzI1NiJ9.eyJuYW1lc3BhY2UiOiJhIiwiZXhwIjo5OTk5OTk5OTk5fQ.AAAA")
	f.Fuzz(func(t *testing.T, token string) {
		if c, err := j.caller(token); err == nil || c != (Caller{}) {
			t.Fatalf("%+v", c)
		}
	})
}

// FuzzGuard checks that no Host or Origin but this server's passes.
func FuzzGuard(f *testing.F) {
	g := Guard{Hosts: []string{"demesne.test"}, Domain: "boxes.test"}
	for _, seed := range []string{"localhost:1", "[::1]:80", "1-a.boxes.test", "demesne.test", "evil.test", "x.1-a.boxes.test", "127.0.0.1@evil.test", "http://localhost", "null", "http://1-a.boxes.test"} {
		f.Add(seed, seed)
		f.Add("demesne.test", seed)
	}
	f.Fuzz(func(t *testing.T, host, origin string) {
		r := &http.Request{Method: "POST", Host: host, Header: http.Header{"Origin": {origin}}}
		passed := false
		g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true })).ServeHTTP(httptest.NewRecorder(), r)
		if !passed {
			return
		}
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" {
			t.Fatalf("%q %q", host, origin)
		}
		from := u.Hostname()
		to, _ := hostname(host)
		if own := map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true, "demesne.test": true, "": true}; !own[strings.ToLower(from)] && !strings.EqualFold(from, to) || strings.HasSuffix(to, ".boxes.test") && !strings.EqualFold(from, to) {
			t.Fatalf("%q %q", host, origin)
		}
	})
}
