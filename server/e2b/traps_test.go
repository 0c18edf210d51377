package e2b

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"demesne/runner"
	"demesne/session"
)

// signature signs as the SDKs do.
func signature(token, path, op, user, until string) string {
	text := path + ":" + op + ":" + user + ":" + token
	if until != "" {
		text += ":" + until
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// TestSigned checks that a signed URL finds its sandbox only by the signature, and that no other signature is good (trap 1).
func TestSigned(t *testing.T) {
	r := newRig(t)
	r.make(`{}`)
	rec := r.make(`{}`)
	past, soon := fmt.Sprint(time.Now().Unix()-1), fmt.Sprint(time.Now().Unix()+60)
	get := func(q url.Values) int { resp, _ := r.send("GET", "/files?"+q.Encode(), ""); return resp.StatusCode }
	if resp, text := r.send("POST", "/files?path=/a", "text", of(rec, "49983", "Content-Type: application/octet-stream")...); resp.StatusCode != 200 {
		t.Fatalf("write: %d %s", resp.StatusCode, text)
	}
	for _, c := range []struct {
		name, sig, until string
		want             int
	}{
		{"good", signature(rec.Token, "/a", "read", "", ""), "", 200}, {"in time", signature(rec.Token, "/a", "read", "", soon), soon, 200},
		{"expired", signature(rec.Token, "/a", "read", "", past), past, 401}, {"a longer time", signature(rec.Token, "/a", "read", "", past), soon, 401},
		{"for writing", signature(rec.Token, "/a", "write", "", ""), "", 401}, {"another path", signature(rec.Token, "/b", "read", "", ""), "", 401},
		{"another token", signature("x", "/a", "read", "", ""), "", 401}, {"no time", signature(rec.Token, "/a", "read", "", "x"), "x", 401}, {"nonsense", "v1_", "", 401},
	} {
		q := url.Values{"path": {"/a"}, "signature": {c.sig}}
		if c.until != "" {
			q.Set("signature_expiration", c.until)
		}
		if got := get(q); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestErrorShape checks that every error of a control call has its numeric code in the body, and that no success has an
// empty chunked body (traps 2 and 3).
func TestErrorShape(t *testing.T) {
	r := newRig(t)
	rec := r.make(`{}`)
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"GET", "/sandboxes/none", "", 404}, {"DELETE", "/sandboxes/none", "", 404}, {"POST", "/sandboxes/none/timeout", `{"timeout":1}`, 404},
		{"POST", "/sandboxes/none/pause", `{}`, 404}, {"POST", "/v2/sandboxes/none/connect", `{}`, 404}, {"PUT", "/sandboxes/none/network", `{}`, 404},
		{"GET", "/sandboxes/none/metrics", "", 404}, {"POST", "/sandboxes/none/snapshots", `{}`, 404}, {"POST", "/sandboxes/none/fork", `{}`, 404},
		{"DELETE", "/templates/none", "", 404}, {"GET", "/nothing", "", 404}, {"GET", "/secrets/none", "", 404}, {"GET", "/volumes/none", "", 404},
		{"POST", "/v2/sandboxes", "{", 400}, {"POST", "/v2/sandboxes", `{"timeout":-1}`, 400}, {"POST", "/v2/sandboxes", `{"timeout":99999999}`, 400},
		{"POST", "/v2/sandboxes", `{"envVars":{"A=B":"x"}}`, 400}, {"POST", "/v2/sandboxes", `{"iam":{"tokens":{}}}`, 400},
		{"POST", "/v2/sandboxes", `{"network":{"egressProxy":{"address":"x"}}}`, 400}, {"POST", "/v2/sandboxes", `{"volumeMounts":[{"name":"none","path":"/x"}]}`, 400},
		{"GET", "/v2/sandboxes?limit=0", "", 400}, {"GET", "/v2/sandboxes?nextToken=%21", "", 400}, {"POST", "/sandboxes/" + rec.ID + "/fork", `{"count":101}`, 400},
		{"POST", "/sandboxes/" + rec.ID + "/timeout", `{"timeout":60}`, 204}, {"POST", "/sandboxes/" + rec.ID + "/pause", `{}`, 204},
		{"POST", "/sandboxes/" + rec.ID + "/pause", `{}`, 409}, {"PUT", "/sandboxes/" + rec.ID + "/network", `{}`, 409}, {"DELETE", "/sandboxes/" + rec.ID, "", 204},
	} {
		resp, text := r.control(c.method, c.path, c.body)
		switch {
		case resp.StatusCode != c.want:
			t.Errorf("%s %s %s: %d %s, want %d", c.method, c.path, c.body, resp.StatusCode, text, c.want)
		case c.want >= 400 && !strings.Contains(text, fmt.Sprintf(`{"code":%d,"message":"`, c.want)):
			t.Errorf("%s %s %s: %s", c.method, c.path, c.body, text)
		case text == "" && c.want != 204 && resp.ContentLength != 0:
			t.Errorf("%s %s: an empty body without a length", c.method, c.path)
		}
	}
	for err, want := range map[error]int{errors.New("x"): 500, session.ErrBusy: 503, session.ErrQuota: 429, session.ErrInvalid: 400} {
		r.fake.fails = err
		if resp, _ := r.control("POST", "/v2/sandboxes", "{}"); resp.StatusCode != want {
			t.Errorf("%v: %d", err, resp.StatusCode)
		}
	}
	if left := len(r.api.store.all()); left != 0 {
		t.Errorf("%d sandboxes that were not made", left)
	}
}

// frame is one message of a stream.
func frame(text string) string {
	b := []byte{0, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(b[1:], uint32(len(text)))
	return string(b) + text
}

// TestStreams checks that a stream's last frame has its error, and that clients which understand only 401 get it (traps 4, 5, 13).
func TestStreams(t *testing.T) {
	r := newRig(t)
	rec := r.make(`{}`)
	stream := []string{"Content-Type: application/connect+json", "Connect-Protocol-Version: 1"}
	resp, text := r.send("POST", "/process.Process/Connect", frame(`{"process":{"pid":7}}`), of(rec, "49983", stream...)...)
	if resp.StatusCode != 200 || text[0] != 2 || !strings.Contains(text, `"code":"not_found"`) {
		t.Errorf("an unknown process: %d %q", resp.StatusCode, text)
	}
	resp, text = r.send("POST", "/filesystem.Filesystem/WatchDir", frame(`{"path":"/none"}`), of(rec, "49983", stream...)...)
	if resp.StatusCode != 200 || text[0] != 2 || !strings.Contains(text, `"code":"not_found"`) {
		t.Errorf("an unknown directory: %d %q", resp.StatusCode, text)
	}
	resp, _ = r.send("POST", "/process.Process/Start", frame(`{}`), append(stream, "E2b-Sandbox-Id: "+rec.ID, "E2b-Sandbox-Port: 49983")...)
	if resp.StatusCode != 401 {
		t.Errorf("without a token: %d", resp.StatusCode)
	}
	unary := []string{"Content-Type: application/json"}
	for path, want := range map[string]string{`{"path":"/none"}`: "not_found", `{"path":""}`: "invalid_argument"} {
		if resp, text := r.send("POST", "/filesystem.Filesystem/Stat", path, of(rec, "49983", unary...)...); resp.StatusCode == 200 || !strings.Contains(text, `"code":"`+want+`"`) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, text)
		}
	}
	if resp, text := r.send("POST", "/filesystem.Filesystem/MakeDir", `{"path":"/d"}`, of(rec, "49983", unary...)...); resp.StatusCode != 200 || !strings.Contains(text, "FILE_TYPE_DIRECTORY") {
		t.Errorf("make: %d %s", resp.StatusCode, text)
	}
	if _, text := r.send("POST", "/filesystem.Filesystem/MakeDir", `{"path":"/d"}`, of(rec, "49983", unary...)...); !strings.Contains(text, `"code":"already_exists"`) {
		t.Errorf("make again: %s", text)
	}
}

// TestMetadataOf checks the three decodings of a list's query (trap 6).
func TestMetadataOf(t *testing.T) {
	q, err := url.ParseQuery("metadata=a%3D1%252520%252526b%26user%3Dabc")
	if err != nil {
		t.Fatal(err)
	}
	m, err := metadataOf(q.Get("metadata"))
	if err != nil || len(m) != 2 || m["a"] != "1 &b" || m["user"] != "abc" {
		t.Errorf("%v %v", m, err)
	}
	if _, err := metadataOf("%zz=x"); !errors.Is(err, session.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

// TestServices checks which service and which token each request belongs to (traps 8, 9, 15).
func TestServices(t *testing.T) {
	r := newRig(t)
	rec, other := r.make(`{}`), r.make(`{"network":{"allowPublicTraffic":false}}`)
	gone := r.make(`{}`)
	r.control("DELETE", "/sandboxes/"+gone.ID, "")
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		want                     int
	}{
		{"health", "GET", "/health", "", of(rec, "49983"), 204}, {"health without a token", "GET", "/health", "", []string{"E2b-Sandbox-Id: " + rec.ID, "E2b-Sandbox-Port: 49983"}, 204},
		{"a dead one", "GET", "/health", "", of(gone, "49983"), 502}, {"a port of it", "GET", "/", "", of(gone, "3000"), 502}, {"another sandbox's token", "GET", "/envs", "", append(of(rec, "49983"), "X-Access-Token: "+other.Token), 401},
		{"the API key instead", "GET", "/envs", "", append(of(rec, "49983"), "X-Access-Token: "+key), 401}, {"its own", "GET", "/envs", "", of(rec, "49983"), 200},
		{"contexts", "GET", "/contexts", "", []string{"E2b-Sandbox-Id: " + rec.ID, "E2b-Sandbox-Port: 49999"}, 200},
		{"execute without a token", "POST", "/execute", "{}", []string{"E2b-Sandbox-Id: " + rec.ID, "E2b-Sandbox-Port: 49999"}, 401},
		{"no public traffic", "GET", "/contexts", "", []string{"E2b-Sandbox-Id: " + other.ID, "E2b-Sandbox-Port: 49999"}, 403},
		{"its traffic token", "GET", "/contexts", "", []string{"E2b-Sandbox-Id: " + other.ID, "E2b-Sandbox-Port: 49999", "E2b-Traffic-Access-Token: " + other.TrafficToken}, 200},
		{"a port by its name", "GET", "/x", "", []string{"Host: 3000-" + rec.ID + ".localhost"}, 502}, {"not a port", "GET", "/", "", of(rec, "99999"), 400},
		{"another site", "GET", "/", "", []string{"Host: 3000-" + rec.ID + ".evil.test"}, 403}, {"a page of another sandbox", "GET", "/x", "", []string{"Host: 3000-" + rec.ID + ".localhost", "Origin: http://3000-x.localhost"}, 403},
		{"an unknown context", "POST", "/execute", `{"code":"1","context_id":"x"}`, of(rec, "49999"), 404}, {"both", "POST", "/execute", `{"code":"1","context_id":"x","language":"python"}`, of(rec, "49999"), 400},
		{"a missing file", "GET", "/files?path=/none", "", of(rec, "49983"), 404}, {"a directory", "GET", "/files?path=/", "", of(rec, "49983"), 400},
		{"no file", "POST", "/files?path=/x", "", of(rec, "49983", "Content-Type: multipart/form-data; boundary=b"), 400},
	} {
		if resp, text := r.send(c.method, c.path, c.body, c.headers...); resp.StatusCode != c.want {
			t.Errorf("%s: %d %s, want %d", c.name, resp.StatusCode, text, c.want)
		}
	}
	r.control("POST", "/sandboxes/"+rec.ID+"/pause", "")
	if resp, _ := r.send("GET", "/health", "", of(rec, "49983")...); resp.StatusCode != 502 {
		t.Errorf("a paused one: %d", resp.StatusCode)
	}
}

// TestAutoResume checks which requests resume a paused sandbox.
func TestAutoResume(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		name, body, path string
		token            bool
		want             int
	}{
		{"not asked for", `{}`, "/envs", true, 502}, {"a command", `{"autoResume":{"enabled":true}}`, "/envs", true, 200},
		{"without the token", `{"autoResume":{"enabled":true}}`, "/envs", false, 502}, {"health", `{"autoResume":{"enabled":true}}`, "/health", true, 502},
	} {
		rec := r.make(c.body)
		r.control("POST", "/sandboxes/"+rec.ID+"/pause", "")
		headers := of(rec, "49983")
		if !c.token {
			headers = headers[:2]
		}
		if resp, text := r.send("GET", c.path, "", headers...); resp.StatusCode != c.want {
			t.Errorf("%s: %d %s", c.name, resp.StatusCode, text)
		}
	}
}

// TestLines checks that lines of an execution have only ASCII, so that no chunk splits a character, and none is blank (trap 10).
func TestLines(t *testing.T) {
	r := newRig(t)
	rec := r.make(`{}`)
	_, text := r.send("POST", "/execute", `{"code":"x"}`, of(rec, "49999")...)
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if strings.IndexFunc(text, func(c rune) bool { return c >= utf8.RuneSelf }) >= 0 || !strings.Contains(lines[0], `x \u20ac \ud83d\ude00\n`) {
		t.Errorf("%q", text)
	}
	if last := lines[len(lines)-1]; last != `{"type":"end_of_execution"}` || strings.Contains(text, "\n\n") {
		t.Errorf("%q", text)
	}
}

// TestUploads checks the names of a form's parts, which may hold directories, and the answer for one entry (traps 11, 12).
func TestUploads(t *testing.T) {
	r := newRig(t)
	rec := r.make(`{}`)
	form := func(names ...string) (string, string) {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		for _, n := range names {
			p, err := w.CreateFormFile("file", n)
			if err != nil {
				t.Fatal(err)
			}
			p.Write([]byte("content of " + n))
		}
		w.Close()
		return b.String(), "Content-Type: " + w.FormDataContentType()
	}
	body, kind := form("/deep/er/one", "/two")
	if resp, text := r.send("POST", "/files", body, of(rec, "49983", kind)...); resp.StatusCode != 200 || !strings.Contains(text, `"path":"/deep/er/one"`) || !strings.Contains(text, `"path":"/two"`) {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	body, kind = form("ignored")
	if resp, text := r.send("POST", "/files?path=/three", body, of(rec, "49983", kind)...); resp.StatusCode != 200 || text != `[{"name":"three","path":"/three","type":"file"}]`+"\n" {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	body, kind = form("a", "b")
	if resp, _ := r.send("POST", "/files?path=/x", body, of(rec, "49983", kind)...); resp.StatusCode != 400 {
		t.Errorf("two files for a path: %d", resp.StatusCode)
	}
	resp, text := r.send("GET", "/files?path=/deep/er/one", "", of(rec, "49983")...)
	if text != "content of /deep/er/one" || resp.Header.Get("Content-Type") != "application/octet-stream" || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%v %s", resp.Header, text)
	}
}

// TestDownloads checks that files of all sizes arrive whole, and that small ones come with their length.
func TestDownloads(t *testing.T) {
	r := newRig(t)
	rec := r.make(`{}`)
	for _, size := range []int{0, 1, 1024, 16<<10 - 1, 16 << 10, 64 << 10, 1 << 20} {
		content := strings.Repeat("0123456789abcdef", size/16+1)[:size]
		if resp, text := r.send("POST", "/files?path=/f", content, of(rec, "49983", "Content-Type: application/octet-stream")...); resp.StatusCode != 200 {
			t.Fatalf("%d: %d %s", size, resp.StatusCode, text)
		}
		resp, text := r.send("GET", "/files?path=/f", "", of(rec, "49983")...)
		if text != content || size < 16<<10 && resp.ContentLength != int64(size) {
			t.Errorf("%d: %d bytes, length %d", size, len(text), resp.ContentLength)
		}
	}
}

// TestDefaults checks what an SDK leaves out: the timeout (trap 16), and what it needs in an answer (traps 14, 18).
func TestDefaults(t *testing.T) {
	r := newRig(t)
	rec := r.make(``)
	if d := rec.End.Sub(rec.Started); d != 300*time.Second || rec.Template != "base" {
		t.Errorf("%v %s", d, rec.Template)
	}
	_, text := r.control("POST", "/v2/sandboxes/"+rec.ID+"/connect", "")
	for _, part := range []string{`"sandboxID":"` + rec.ID, `"envdVersion":"0.6.4"`, `"envdAccessToken":"` + rec.Token, `"trafficAccessToken":null`} {
		if !strings.Contains(text, part) {
			t.Errorf("%s lacks %s", text, part)
		}
	}
	if e := ending(&runner.Result{Reason: runner.OOM, Detail: "x"}); e.GetError() == "" {
		t.Error("an end without an error text")
	}
}

// TestKept checks that a server finds the sandboxes of the one before, and removes those that no client knows.
func TestKept(t *testing.T) {
	r := newRig(t)
	rec := r.make(`{"metadata":{"a":"b"},"timeout":100}`)
	lost := r.make(`{}`)
	half := &entry{store: r.api.store, rec: record{ID: newID(), State: creating}}
	late := &entry{store: r.api.store, rec: record{ID: newID(), State: creating}} // the runner makes it after the next start
	if _, err := r.fake.add(half.rec.name()); err != nil || half.save() != nil || late.save() != nil {
		t.Fatal(err)
	}
	r.fake.Remove(t.Context(), lost.name())
	r.http.Close()
	r.api.Close()
	r.start()
	all := r.api.store.all()
	if len(all) != 1 || all[0].rec.ID != rec.ID || all[0].rec.Metadata["a"] != "b" || all[0].rec.Token != rec.Token {
		t.Errorf("found: %d", len(all))
	}
	if _, err := r.fake.add(late.rec.name()); err != nil {
		t.Fatal(err)
	}
	r.goes(half)
	r.goes(late)
}

// goes waits until the runner does not have a sandbox.
func (r *rig) goes(e *entry) {
	r.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := r.fake.find(e.rec.name()); err != nil {
			return
		}
		if time.Now().After(deadline) {
			r.Fatal("a sandbox that no client knows stays")
		}
	}
}

// TestRules checks how the words of E2B's network become rules.
func TestRules(t *testing.T) {
	no := false
	for _, c := range []struct {
		n           network
		open        bool
		allow, deny string
		wrong       bool
	}{
		{network{}, true, "", "", false}, {network{Internet: &no}, false, "", "", false},
		{network{DenyOut: []string{everything}, AllowOut: []string{"example.com", "*.x.test", "1.1.1.1", "10.0.0.0/8", "fd00::1"}}, false, "example.com *.x.test 1.1.1.1:* 10.0.0.0/8:* [fd00::1]:*", "", false},
		{network{DenyOut: []string{"8.8.8.8", "9.0.0.0/8"}}, true, "", "8.8.8.8 9.0.0.0/8", false},
		{network{DenyOut: []string{"8.8.8.8"}, AllowOut: []string{"8.8.8.8"}}, true, "8.8.8.8:*", "", false},
		{network{DenyOut: []string{"8.0.0.0/8"}, AllowOut: []string{"8.8.8.8"}}, true, "", "", true},
		{network{DenyOut: []string{"example.com"}}, true, "", "", true}, {network{AllowOut: []string{"a b"}}, true, "", "", true},
		{network{MaskHost: "${PORT}.x.test:${PORT}"}, true, "", "", false}, {network{MaskHost: "x${PORT"}, true, "", "", true}, {network{MaskHost: "x.test/${PORT}"}, true, "", "", true},
		{network{AllowOut: []string{"a path=/x"}}, true, "", "", true}, {network{Rules: map[string][]hostRule{"*.x": nil}}, true, "", "", true},
	} {
		got, err := c.n.rules("open")
		if (err != nil) != c.wrong || err == nil && ((got.Mode == "open") != c.open || strings.Join(got.Allow, " ") != c.allow || strings.Join(got.Deny, " ") != c.deny) {
			t.Errorf("%+v: %+v %v", c.n, got, err)
		}
	}
}

// TestContainerfile checks that no step of a template can add an instruction.
func TestContainerfile(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		step step
		want string
	}{
		{step{Type: "RUN", Args: []string{"echo \"a\"\nFROM x"}}, `RUN ["/bin/sh","-c","echo \"a\"\nFROM x"]`},
		{step{Type: "RUN", Args: []string{"id", "root"}}, "USER root\nRUN [\"/bin/sh\",\"-c\",\"id\"]"}, {step{Type: "RUN", Args: []string{"id", "a\nFROM x"}}, ""},
		{step{Type: "ENV", Args: []string{"A", "it's $HOME"}}, `ENV A='it'\''s $HOME'`}, {step{Type: "ENV", Args: []string{"A", "x\nFROM y"}}, ""}, {step{Type: "ENV", Args: []string{"A B", "x"}}, ""},
		{step{Type: "WORKDIR", Args: []string{"/a b"}}, ""}, {step{Type: "WORKDIR", Args: []string{"/a"}}, "WORKDIR /a"}, {step{Type: "USER", Args: []string{"a"}}, "USER a"},
		{step{Type: "COPY", Args: []string{"a", "/b"}, Files: "../../etc"}, ""}, {step{Type: "ONBUILD", Args: []string{"x"}}, ""},
	} {
		got, err := r.api.builds.instruction(&workspace{dir: t.TempDir(), ledger: &r.api.store.ledger}, 0, c.step)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: %q %v, want %q", c.step, got, err, c.want)
		}
	}
	if _, err := r.api.builds.base(t.Context(), nil, recipe{FromImage: "a\nRUN x"}, nil); err == nil {
		t.Error("a base with a line")
	}
}

// TestSecretsHidden checks that no answer has the value of a secret.
func TestSecretsHidden(t *testing.T) {
	r := newRig(t)
	said := ""
	for _, c := range [][3]string{
		{"POST", "/secrets", `{"name":"s","value":"hidden-value"}`}, {"GET", "/secrets", ""}, {"GET", "/secrets/s", ""},
		{"POST", "/secrets/s", `{"value":"hidden-value"}`}, {"POST", "/secrets", `{"name":"s","value":"hidden-value"}`},
	} {
		resp, text := r.control(c[0], c[1], c[2])
		said += fmt.Sprint(resp.StatusCode, " ", text)
	}
	if strings.Contains(said, "hidden-value") || !strings.Contains(said, `"currentVersion":2`) || !strings.Contains(said, "409 ") {
		t.Error(said)
	}
	if resp, _ := r.send("GET", "/secrets", ""); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a key: %d", resp.StatusCode)
	}
}
