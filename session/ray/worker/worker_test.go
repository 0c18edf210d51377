package worker

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"demesne/internal/text"
	"demesne/runner/jobs"
	"demesne/session/engines"
)

// api is a jobs API whose answers a test sets, by method and path. It records the requests.
type api struct {
	*httptest.Server
	answers map[string]string // an answer that does not begin with { is an error
	bodies  map[string]string
	token   string
}

const version = "GET /api/version"

func newAPI(t *testing.T) *api {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	for _, name := range []string{"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} {
		t.Setenv(name, "")
	}
	a := &api{answers: map[string]string{version: `{"ray_version":"2.60.0"}`}, bodies: map[string]string{}}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Method + " " + r.URL.Path
		body, _ := io.ReadAll(r.Body)
		a.bodies[key] = string(body)
		answer, known := a.answers[key]
		switch {
		case a.token != "" && r.Header.Get("Authorization") != "Bearer "+a.token:
			http.Error(w, "no token", http.StatusUnauthorized)
		case !known:
			http.NotFound(w, r)
		case strings.HasPrefix(answer, "/"):
			http.Redirect(w, r, answer, http.StatusFound)
		case !strings.HasPrefix(answer, "{"):
			http.Error(w, answer, http.StatusBadRequest)
		default:
			io.WriteString(w, answer)
		}
	}))
	t.Cleanup(a.Close)
	return a
}

// call serves one request.
func (a *api) call(t *testing.T, verb, in string, ids ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := serve(t.Context(), verb, a.URL, ids, strings.NewReader(in), &out)
	return out.String(), err
}

// TestSubmit sends a request as it is, and says why Ray refuses one.
func TestSubmit(t *testing.T) {
	a := newAPI(t)
	const key = "POST /api/jobs/"
	a.answers[key] = `{"submission_id":"job-1"}`
	if _, err := a.call(t, engines.Submit, `{"a":1}`); err != nil || a.bodies[key] != `{"a":1}` {
		t.Errorf("%v: %q", err, a.bodies)
	}
	a.answers[key] = "Traceback (most recent call last):\n  File x\nValueError: Job already exists"
	if _, err := a.call(t, engines.Submit, `{}`); err == nil || !strings.HasSuffix(err.Error(), "answered 400 Bad Request: Traceback (most recent call last): ValueError: Job already exists") {
		t.Error(err)
	}
}

// TestStates checks what the states of Ray's jobs are here.
func TestStates(t *testing.T) {
	a := newAPI(t)
	for _, c := range []struct {
		answer string
		want   jobs.State
	}{
		{`{"status":"PENDING","message":"Job has not started yet."}`, jobs.State{Status: jobs.Queued, Reason: "Job has not started yet."}},
		{`{"status":"RUNNING","message":"Job is currently running."}`, jobs.State{Status: jobs.Running}},
		{`{"status":"STOPPED","message":"Job was intentionally stopped."}`, jobs.State{Status: jobs.Cancelled, Reason: "STOPPED"}},
		{`{"status":"SUCCEEDED","message":"Job finished successfully."}`, jobs.State{Status: jobs.Failed, Reason: "Job finished successfully."}}, // asked only without a result
		{`{"status":"FAILED","message":"failed with exit code 2, last available logs:\nRunning x\nsh: 1: cannot create /x/log: Permission denied\n"}`,
			jobs.State{Status: jobs.Failed, Reason: "failed with exit code 2: sh: 1: cannot create /x/log: Permission denied"}},
		{`{"status":"FAILED","message":"failed with exit code 2, last available logs (truncated to 20,000 chars):\nRunning entrypoint: exec python3\n' '/x' >>'/x/log' 2>&1\n"}`,
			jobs.State{Status: jobs.Failed, Reason: "failed with exit code 2"}},
		{`{"status":"FAILED"}`, jobs.State{Status: jobs.Failed, Reason: "FAILED"}},
		{`{"status":"INVENTED"}`, jobs.State{Status: jobs.Failed, Reason: "INVENTED"}},
	} {
		a.answers["GET /api/jobs/job-1"] = c.answer
		out, err := a.call(t, engines.States, "", "job-1", "job-2") // Ray does not know the other one
		var got map[string]jobs.State
		if err != nil || json.Unmarshal([]byte(out), &got) != nil || len(got) != 1 || got["job-1"] != c.want {
			t.Errorf("%s: %s, %v", c.answer, out, err)
		}
	}
}

// TestCancel stops a job, and accepts one that Ray does not know.
func TestCancel(t *testing.T) {
	a := newAPI(t)
	const key = "POST /api/jobs/job-1/stop"
	a.answers[key] = `{"stopped":true}`
	for range 2 {
		if _, err := a.call(t, engines.Cancel, "", "job-1"); err != nil {
			t.Error(err)
		}
		if _, asked := a.bodies[key]; !asked {
			t.Error("not asked")
		}
		delete(a.answers, key)
	}
	for _, verb := range []string{engines.Cancel, "dance"} {
		if _, err := a.call(t, verb, ""); err == nil {
			t.Errorf("%s is accepted", verb)
		}
	}
}

// TestWrongAddress checks that another server, a redirection and silence are errors with a hint, which end no job.
func TestWrongAddress(t *testing.T) {
	for name, prepare := range map[string]func(*api){
		"404 of another server": func(a *api) { delete(a.answers, version) },
		"JSON of another":       func(a *api) { a.answers[version] = `{"name":"x"}` },
		"redirection": func(a *api) {
			a.answers["GET /api/jobs/job-1"], a.answers["POST /api/jobs/"] = "/login", "/login"
		},
		"not JSON": func(a *api) {
			a.answers["GET /api/jobs/job-1"], a.answers["POST /api/jobs/"] = "{<html>", "{<html>"
		},
		"silence": func(a *api) { a.Close() },
	} {
		a := newAPI(t)
		prepare(a)
		if _, err := a.call(t, engines.States, "", "job-1"); err == nil || !strings.Contains(err.Error(), a.URL) || text.HintOf(err) != hint {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := a.call(t, engines.Submit, `{}`); err == nil || text.HintOf(err) != hint {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestToken sends the token that Ray's own client would send.
func TestToken(t *testing.T) {
	a := newAPI(t)
	a.token = "secret"
	ask := func() error {
		_, err := a.call(t, engines.States, "", "job-1")
		return err
	}
	if err := ask(); err == nil || !strings.Contains(err.Error(), "does not accept this user's token") || text.HintOf(err) == "" {
		t.Error(err)
	}
	dir := os.Getenv("HOME") + "/.ray"
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, value := range map[string]string{"auth_token": "secret\n", "other": "wrong"} {
		if err := os.WriteFile(dir+"/"+path, []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, value string
		ok          bool
	}{
		{"RAY_AUTH_MODE", "token", true}, {"RAY_AUTH_TOKEN_PATH", dir + "/other", false}, {"RAY_AUTH_TOKEN", "secret", true}, {"RAY_AUTH_MODE", "disabled", false},
	} {
		t.Setenv(c.name, c.value)
		if err := ask(); (err == nil) != c.ok {
			t.Errorf("%s=%s: %v", c.name, c.value, err)
		}
	}
}
