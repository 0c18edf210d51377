package server

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestToken checks the form of the token, that it is made once, only for its owner, and that a file that others can read is
// refused.
func TestToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	first, err := Token(path)
	if err != nil || !regexp.MustCompile(`^e2b_[0-9a-f]{64}$`).MatchString(first) {
		t.Fatalf("%q %v", first, err)
	}
	if again, err := Token(path); again != first || err != nil {
		t.Errorf("%q %v", again, err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	link := path + "link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Token(link); err == nil {
		t.Error("a link was followed")
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Token(path); err == nil || !strings.Contains(err.Error(), "other users can read it") {
		t.Errorf("%v", err)
	}
	short := path + "short"
	if err := os.WriteFile(short, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Token(short); err == nil {
		t.Error("a short token")
	}
	if Same("", "") || Same("a", "b") || !Same("a", "a") {
		t.Error("Same")
	}
}

// TestGuard checks Host and Origin.
func TestGuard(t *testing.T) {
	h := Guard{Hosts: []string{"tools.example"}, Domain: "localhost:1"}.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }))
	for _, c := range []struct {
		host, origin string
		want         int
	}{
		{"localhost:1", "", 204}, {"127.0.0.1:1", "", 204}, {"[::1]:1", "", 204}, {"tools.example", "", 204}, {"TOOLS.example", "", 204},
		{"3000-ix.localhost:1", "", 204}, {"a.b.localhost:1", "", 403}, {"evil.example", "", 403}, {"localhost.evil.example", "", 403},
		{"localhost:1", "http://localhost:1", 204}, {"localhost:1", "https://evil.example", 403}, {"localhost:1", "null", 403},
		{"localhost:1", "http://3000-ix.localhost:1", 403}, {"3000-ix.localhost:1", "http://3000-ix.localhost:1", 204}, {"3000-ix.localhost:1", "http://3000-iy.localhost:1", 403},
		{"3000-ix.localhost:1", "http://localhost:1", 403}, {"[3000-ix.localhost]:1", "", 403}, {"[3000-ix.localhost]", "", 403}, {"[localhost]", "", 403}, {"[127.0.0.1]:1", "", 403},
		{"::1", "", 403}, {"localhost:1:2", "", 403}, {"3000-ix.localhost:x", "", 403}, {":1", "", 403}, {"x@3000-ix.localhost", "", 403}, {"3000-ix.localhost.", "", 403}, {"3000-IX.LOCALHOST", "", 204},
		{"localhost:1", "http://[3000-ix.localhost]", 403}, {"localhost:1", "http://[::1]:1", 204},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%+v: %d", c, w.Code)
		}
	}
}

// TestListen checks that an address that other machines can reach must be wanted, and that a socket is its owner's.
func TestListen(t *testing.T) {
	if _, err := Listen("0.0.0.0:0", false); err == nil {
		t.Error("0.0.0.0")
	}
	l, err := Listen("127.0.0.1:0", false)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if l, err = Listen("unix:"+filepath.Join(t.TempDir(), "s"), false); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := Listen("unix:", false); err == nil {
		t.Error("no path")
	}
}
