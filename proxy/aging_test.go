package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"demesne/proxy/policy"
)

const (
	oldTime   = "2026-01-01T00:00:00Z"
	youngTime = "2026-06-09T23:00:00.123Z"
)

// registryWorld serves each kind of registry under the hosts of the table, with one old and one young version of each package.
// broken makes every answer unreadable.
type registryWorld struct {
	*rig
	ca     *authority
	hosts  []string
	client *http.Client
	broken atomic.Bool
}

// hostOf returns the host of a kind in the table.
func hostOf(kind policy.Registry) string {
	for host, k := range policy.Registries() {
		if k == kind && !strings.Contains(host, "yarn") {
			return host
		}
	}
	return ""
}

func newRegistries(t *testing.T) *registryWorld {
	w := &registryWorld{ca: newAuthority(t)}
	for i, kind := range []policy.Registry{policy.NPMRegistry, policy.PyPIRegistry, policy.PyPIFiles, policy.GoRegistry, policy.CratesSparse, policy.CratesFiles} {
		w.hosts = append(w.hosts, hostOf(kind))
		w.ca.serveHTTPS(t, fmt.Sprintf("8.0.0.%d:443", i+2), func(rw http.ResponseWriter, r *http.Request) {
			if w.broken.Load() {
				io.WriteString(rw, "<html>")
				return
			}
			w.serve(rw, r)
		}, hostOf(kind))
	}
	return w
}

// begin starts a proxy that knows nothing of earlier requests.
func (w *registryWorld) begin(t *testing.T, except ...string) {
	at, _ := time.Parse(time.RFC3339, "2026-06-10T00:00:00Z")
	w.rig = newRig(t, Config{Policy: allow(t, w.hosts...), Roots: w.ca.pool, Aging: &Aging{Least: 7 * 24 * time.Hour, Except: except, Now: func() time.Time { return at }}}, w.hosts...)
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM(w.proxy.CA())
	w.client = &http.Client{Transport: &http.Transport{
		Proxy:             http.ProxyURL(&url.URL{Scheme: "http", Host: w.addr}),
		TLSClientConfig:   &tls.Config{RootCAs: trust},
		DisableKeepAlives: true,
	}}
}

// serve is every registry.
func (w *registryWorld) serve(rw http.ResponseWriter, r *http.Request) {
	files := "https://" + hostOf(policy.PyPIFiles)
	answers := map[string]string{
		"/left": `{"name":"left","dist-tags":{"latest":"2.0.0","next":"3.0.0-a","old":"1.0.0"},"time":{"created":"x","modified":"y","1.0.0":"` + oldTime + `","1.1.0-rc":"` + oldTime + `","2.0.0":"` + youngTime + `","3.0.0-a":"` + youngTime + `","0.9.0":"` + youngTime + `"},
			"versions":{"1.0.0":{"dist":{"integrity":"sha512-old==","signatures":[ {"sig" :"s"}]}},"1.1.0-rc":{},"2.0.0":{"dist":{"integrity":"young"}},"3.0.0-a":{}, "4.0.0":{}},"readme":"r"}`,
		"/@s/right":                             `{"time":{"1.0.0":"` + youngTime + `"},"versions":{"1.0.0":{}},"dist-tags":{"latest":"1.0.0"}}`,
		"/notimes":                              `{"versions":{"1.0.0":{}}}`,
		"/simple/pkg/":                          `{"meta":{"api-version":"1.1"},"name":"pkg","versions":["1.0","2.0"],"files":[{"filename":"pkg-1.0-py3-none-any.whl","url":"` + files + `/packages/aa/pkg-1.0-py3-none-any.whl","hashes":{"sha256":"0ld"},"requires-python":">=3.8","upload-time":"` + oldTime + `"},{"filename":"pkg-2.0.tar.gz","url":"` + files + `/packages/bb/pkg-2.0.tar.gz","hashes":{"sha256":"y0ung"},"upload-time":"` + youngTime + `"}]}`,
		"/packages/aa/pkg-1.0-py3-none-any.whl": "old wheel", "/packages/bb/pkg-2.0.tar.gz": "young sdist", "/packages/aa/pkg-1.0-py3-none-any.whl.metadata": "metadata",
		"/left/-/left-1.0.0.tgz": "old tarball", "/left/-/left-2.0.0.tgz": "young tarball",
		"/go.test/!mod/@v/list": "v1.0.0\nv1.1.0\nv1.2.0-pre\n", "/go.test/!mod/@latest": `{"Version":"v1.1.0","Time":"` + youngTime + `"}`,
		"/go.test/!mod/@v/v1.0.0.info": `{"Version":"v1.0.0","Time":"` + oldTime + `"}`, "/go.test/!mod/@v/v1.1.0.info": `{"Version":"v1.1.0","Time":"` + youngTime + `"}`, "/go.test/!mod/@v/v1.2.0-pre.info": `{"Version":"v1.2.0-pre","Time":"` + youngTime + `"}`,
		"/go.test/!mod/@v/v1.0.0.zip": "old zip", "/go.test/!mod/@v/v1.1.0.zip": "young zip", "/go.test/!mod/@v/v1.1.0.mod": "young mod",
		"/in/fl/inflector":                        `{"name":"Inflector","vers":"1.0.0","cksum":"c0ld","pubtime":"` + oldTime + `"}` + "\n" + `{"name":"Inflector","vers":"1.1.0","cksum":"y","pubtime":"` + youngTime + `"}` + "\n" + `{"name":"Inflector","vers":"0.1.0","cksum":"n"}` + "\n",
		"/crates/Inflector/Inflector-1.0.0.crate": "old crate", "/crates/Inflector/Inflector-1.1.0.crate": "young crate", "/crates/Inflector/1.1.0/download": "young crate", "/config.json": `{"dl":"x"}`,
		"/-/ping": "{}",
	}
	if r.URL.Path == "/simple/PKG/" {
		http.Redirect(rw, r, "/simple/pkg/", http.StatusMovedPermanently)
		return
	}
	answers["/echo"] = `{"time":{"1.0.0":"` + oldTime + `"},"versions":{"1.0.0":{}},"readme":"` + r.Header.Get("Authorization") + `"}`
	text, ok := answers[r.URL.EscapedPath()]
	if !ok {
		http.NotFound(rw, r)
		return
	}
	rw.Header().Set("ETag", `"same"`)
	if r.Header.Get("If-None-Match") != "" {
		rw.WriteHeader(http.StatusNotModified)
		return
	}
	io.WriteString(rw, text)
}

// get returns the status and the body of a request to a registry.
func (w *registryWorld) get(kind policy.Registry, path string, header ...string) (int, string) {
	w.t.Helper()
	r, err := http.NewRequest(http.MethodGet, "https://"+hostOf(kind)+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := w.client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// TestAging checks what each registry answers through the proxy: metadata without young versions, files of old ones, and 403
// with the age for files of young ones.
func TestAging(t *testing.T) {
	w := newRegistries(t)
	for _, c := range []struct {
		kind    policy.Registry
		path    string
		code    int
		has     string // separated by |
		hasNone string
	}{
		{policy.NPMRegistry, "/left", 200, `"integrity":"sha512-old=="|{"sig":"s"}|"latest":"1.0.0"|"old":"1.0.0"|"created":"x"|"readme":"r"|1.1.0-rc`, "2.0.0|3.0.0|4.0.0|next|0.9.0|young"},
		{policy.NPMRegistry, "/@s/right", 403, "every version is too young|--package-age wants 7d|--package-age-except @s/right", ""},
		{policy.NPMRegistry, "/notimes", 502, "no times", ""},
		{policy.NPMRegistry, "/none", 404, "", ""},
		{policy.NPMRegistry, "/-/ping", 200, "{}", ""},
		{policy.NPMRegistry, "/left/-/left-1.0.0.tgz", 200, "old tarball", ""},
		{policy.NPMRegistry, "/left/-/left-2.0.0.tgz", 403, "it is 1h0m0s old|--package-age wants 7d|--package-age-except left allows it", "young tarball"},
		{policy.NPMRegistry, "/left/-/left-4.0.0.tgz", 403, "unknown", ""},
		{policy.NPMRegistry, "/left/-/right-1.0.0.tgz", 403, "not the file", ""},
		{policy.PyPIRegistry, "/simple/pkg/", 200, `>pkg-1.0-py3-none-any.whl<|#sha256=0ld|data-requires-python="&gt;=3.8"`, "2.0|y0ung"},
		{policy.PyPIRegistry, "/simple/PKG/", 200, "pkg-1.0", "2.0"},
		{policy.PyPIRegistry, "/pypi/pkg/json", 403, "simple API", ""},
		{policy.PyPIFiles, "/packages/aa/pkg-1.0-py3-none-any.whl", 200, "old wheel", ""},
		{policy.PyPIFiles, "/packages/aa/pkg-1.0-py3-none-any.whl.metadata", 200, "metadata", ""},
		{policy.PyPIFiles, "/packages/bb/pkg-2.0.tar.gz", 403, "it is 1h0m0s old|--package-age-except pkg", "young sdist"},
		{policy.PyPIFiles, "/packages/zz/pkg-1.0-py3-none-any.whl", 403, "unknown", ""},
		{policy.GoRegistry, "/go.test/!mod/@v/list", 200, "v1.0.0\n", "v1.1.0|pre"},
		{policy.GoRegistry, "/go.test/!mod/@latest", 200, `"v1.0.0"`, "v1.1.0"},
		{policy.GoRegistry, "/go.test/!mod/@v/v1.0.0.zip", 200, "old zip", ""},
		{policy.GoRegistry, "/go.test/!mod/@v/v1.1.0.zip", 403, "v1.1.0: it is 1h0m0s old|go.test/Mod", "young zip"},
		{policy.GoRegistry, "/go.test/!mod/@v/v1.1.0.mod", 403, "it is 1h0m0s old", ""},
		{policy.GoRegistry, "/go.test/!mod/@v/v1.1.0.info", 403, "it is 1h0m0s old", ""},
		{policy.GoRegistry, "/go.test/!mod/@v/v9.0.0.zip", 403, "unknown", ""},
		{policy.CratesSparse, "/in/fl/inflector", 200, `"cksum":"c0ld"`, "1.1.0|0.1.0"},
		{policy.CratesSparse, "/in/fl/other", 403, "not the address", ""},
		{policy.CratesSparse, "/config.json", 200, `{"dl":"x"}`, ""},
		{policy.CratesFiles, "/crates/Inflector/Inflector-1.0.0.crate", 200, "old crate", ""},
		{policy.CratesFiles, "/crates/Inflector/Inflector-1.1.0.crate", 403, "1.1.0: it is 1h0m0s old|--package-age-except inflector", "young crate"},
		{policy.CratesFiles, "/crates/Inflector/1.1.0/download", 403, "it is 1h0m0s old", "young crate"},
	} {
		w.begin(t)
		code, body := w.get(c.kind, c.path, "If-None-Match", `"same"`)
		if code != c.code {
			t.Errorf("%s %s: %d, want %d: %.300s", c.kind, c.path, code, c.code, body)
			continue
		}
		for _, want := range strings.Split(c.has, "|") {
			if !strings.Contains(body, want) {
				t.Errorf("%s %s: no %q in %.500s", c.kind, c.path, want, body)
			}
		}
		for _, not := range strings.Split(c.hasNone, "|") {
			if not != "" && strings.Contains(body, not) {
				t.Errorf("%s %s: %q in %.500s", c.kind, c.path, not, body)
			}
		}
		w.proxy.Close()
	}
}

// TestAgingFails checks that what the proxy cannot judge does not pass: unreadable metadata, other ports, rules without checks
// of the protocol.
func TestAgingFails(t *testing.T) {
	w := newRegistries(t)
	w.broken.Store(true)
	for kind, paths := range map[policy.Registry]string{
		policy.NPMRegistry: "/left /left/-/left-1.0.0.tgz", policy.PyPIRegistry: "/simple/pkg/", policy.PyPIFiles: "/packages/aa/pkg-1.0-py3-none-any.whl",
		policy.GoRegistry:   "/go.test/!mod/@v/list /go.test/!mod/@latest /go.test/!mod/@v/v1.0.0.info /go.test/!mod/@v/v1.0.0.zip",
		policy.CratesSparse: "/in/fl/inflector", policy.CratesFiles: "/crates/Inflector/Inflector-1.0.0.crate",
	} {
		for path := range strings.FieldsSeq(paths) {
			w.begin(t)
			if code, body := w.get(kind, path); code != 502 && code != 403 || strings.HasPrefix(body, "<html>") {
				t.Errorf("%s %s: %d %s", kind, path, code, body)
			}
		}
	}
	npm, err := policy.ParseName(hostOf(policy.NPMRegistry))
	if err != nil {
		t.Fatal(err)
	}
	w.begin(t)
	w.proxy.SetPolicy(allow(t, "tcp://"+npm.String()+":*"))
	if f := w.proxy.ask("test", policy.Query{Name: npm, Port: 8443}); f.d.Allowed {
		t.Errorf("port 8443: %+v", f.d)
	}
	if s := w.proxy.ask("test", policy.Query{Name: npm, Port: 443}).shape(); s != httpsFor {
		t.Errorf("a tcp rule turns the check off: shape %v", s)
	}
}

// TestAgingExcept checks that a package may be young by name, in any spelling of Python's, and that others may not. It checks
// that the log says what was applied.
func TestAgingExcept(t *testing.T) {
	w := newRegistries(t)
	w.begin(t, "@s/right", "PKG", "go.test/Mod", "inflector")
	for kind, path := range map[policy.Registry]string{
		policy.NPMRegistry: "/@s/right", policy.PyPIRegistry: "/simple/pkg/", policy.PyPIFiles: "/packages/bb/pkg-2.0.tar.gz",
		policy.GoRegistry: "/go.test/!mod/@v/v1.1.0.zip", policy.CratesFiles: "/crates/Inflector/Inflector-1.1.0.crate",
	} {
		if code, body := w.get(kind, path); code != 200 || !strings.Contains(body, "oung") && !strings.Contains(body, youngTime) {
			t.Errorf("%s %s: %d %s", kind, path, code, body)
		}
	}
	if code, _ := w.get(policy.NPMRegistry, "/left/-/left-2.0.0.tgz"); code != 403 {
		t.Errorf("another package: %d", code)
	}
	w.get(policy.NPMRegistry, "/left")
	w.proxy.Close()
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	if log := w.log.b.String(); !strings.Contains(log, "; --package-age 7d") || !strings.Contains(log, "--package-age-except left allows it") {
		t.Errorf("log: %s", log)
	}
}

// TestAgingJSON checks the form for pip and uv, which ask for JSON.
func TestAgingJSON(t *testing.T) {
	w := newRegistries(t)
	w.begin(t)
	_, body := w.get(policy.PyPIRegistry, "/simple/pkg/", "Accept", "application/vnd.pypi.simple.v1+json, text/html;q=0.1")
	var doc struct {
		Versions []string
		Files    []struct{ Filename, URL string }
	}
	if err := json.Unmarshal([]byte(body), &doc); err != nil || len(doc.Files) != 1 || doc.Files[0].Filename != "pkg-1.0-py3-none-any.whl" || strings.Join(doc.Versions, " ") != "1.0" {
		t.Errorf("%v: %s", err, body)
	}
}

// TestAgingSecret checks that a registry gets the value of a secret, and that the proxy's own answer does not have it.
func TestAgingSecret(t *testing.T) {
	w := newRegistries(t)
	w.begin(t, "none")
	s, err := NewSecret("TOKEN", value, hostOf(policy.NPMRegistry), "Authorization")
	if err != nil {
		t.Fatal(err)
	}
	w.proxy.secrets, w.proxy.hidden = secrets{s}, secrets{s}.values()
	code, body := w.get(policy.NPMRegistry, "/echo", "Authorization", "Bearer "+s.Placeholder())
	if code != 200 || strings.Contains(body, value) || !strings.Contains(body, `"readme":"Bearer `) || strings.Contains(body, s.Placeholder()) {
		t.Errorf("%d %s", code, body)
	}
}
