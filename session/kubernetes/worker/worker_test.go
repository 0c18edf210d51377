package worker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"demesne/internal/text"
	"demesne/runner/jobs"
	"demesne/session/engines"
	"demesne/session/kubernetes"
)

// apiServer answers as an API server does, by "METHOD path". It records the bodies that it gets.
type apiServer struct {
	*httptest.Server
	answers map[string]answer
	mu      sync.Mutex
	bodies  map[string]string
}

type answer struct {
	code int
	body string
}

// newServer also makes it the cluster of this process.
func newServer(t *testing.T, answers map[string]answer) *apiServer {
	t.Helper()
	s := &apiServer{answers: answers, bodies: map[string]string{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Method + " " + r.URL.Path
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.bodies[key] = string(body)
		s.mu.Unlock()
		a, ok := s.answers[key]
		if !ok {
			a = answer{404, status(404, "NotFound", "not found: "+key)}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.code)
		io.WriteString(w, a.body)
	}))
	t.Cleanup(s.Close)
	configure(t, s.URL)
	return s
}

func configure(t *testing.T, url string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	conf := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q}}],"users":[{"name":"u","user":{"token":"x"}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"u","namespace":"work"}}],"current-context":"c"}`, url)
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", path)
}

func status(code int, reason, message string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":%q}`, reason, code, message)
}

const template = `{"template":{"metadata":{"labels":{"team":"a"}},"spec":{"hostUsers":false,"containers":[{"name":"side","image":"s"},{"name":"demesne","image":"d","env":[{"name":"HOME","value":"/w"}]}]}}}`

// TestSubmit checks the Job of a namespace's PodTemplate.
func TestSubmit(t *testing.T) {
	t.Setenv("WORD", "word")
	s := newServer(t, map[string]answer{
		"GET /api/v1/namespaces/other/podtemplates/demesne": {200, template},
		"POST /apis/batch/v1/namespaces/other/jobs":         {201, "{}"},
	})
	p, _ := json.Marshal(jobs.Process{ID: "job-1", Env: []string{"WORD", "UNSET"}, Request: []byte(`{"run":["true"]}`),
		Needs: jobs.Needs{Memory: 1 << 30, CPUs: 0.5, Time: 90 * time.Second}})
	if err := serve(t.Context(), engines.Submit, "other", nil, bytes.NewReader(p), io.Discard); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	json.Indent(&got, []byte(s.bodies["POST /apis/batch/v1/namespaces/other/jobs"]), "", " ")
	want, err := os.ReadFile("testdata/job.json")
	if os.Getenv("UPDATE") != "" {
		err = os.WriteFile("testdata/job.json", got.Bytes(), 0o644)
	}
	if err != nil || os.Getenv("UPDATE") == "" && got.String() != string(want) {
		t.Errorf("%v:\n%s", err, got.String())
	}
}

// TestErrors checks that each failure is one line with what to do.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name       string
		answer     answer
		says, hint string
	}{
		{"no template", answer{404, status(404, "NotFound", "x")}, `namespace "work" has no PodTemplate "demesne"`, "kubectl apply -n work -k"},
		{"expired", answer{401, status(401, "Unauthorized", "Unauthorized")}, "does not accept the credentials", "sign in"},
		{"forbidden", answer{403, status(403, "Forbidden", `podtemplates "demesne" is forbidden: User "u" cannot get`)}, `User "u" cannot get`, "the role demesne"},
		{"broken", answer{500, status(500, "InternalError", "etcd is full")}, "etcd is full", ""},
		{"odd", answer{200, "<html>"}, "read PodTemplate", ""},
		{"empty", answer{200, "{}"}, "no template", ""},
		{"no container", answer{200, `{"template":{"spec":{"containers":[]}}}`}, "no container", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			newServer(t, map[string]answer{"GET /api/v1/namespaces/work/podtemplates/demesne": c.answer})
			err := serve(t.Context(), engines.Submit, "", nil, strings.NewReader("{}"), io.Discard)
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(text.HintOf(err), c.hint) || (c.hint == "") != (text.HintOf(err) == "") {
				t.Errorf("%v; %q", err, text.HintOf(err))
			}
		})
	}
	s := newServer(t, nil)
	s.Close()
	if err := serve(t.Context(), engines.States, "", []string{"job-1"}, nil, io.Discard); err == nil || !strings.Contains(err.Error(), "no answer from the API server") || text.HintOf(err) == "" {
		t.Error(err)
	}
	t.Setenv("KUBECONFIG", "/nowhere")
	if err := serve(t.Context(), engines.States, "", nil, nil, io.Discard); err == nil || err.Error() != "no cluster is configured" || text.HintOf(err) == "" {
		t.Error(err)
	}
	if err := serve(t.Context(), "dance", "", nil, nil, io.Discard); err == nil {
		t.Error("unknown verb")
	}
}

// TestStates checks what a job's state is, by its Job, its newest pod and its events.
func TestStates(t *testing.T) {
	const (
		done    = `"status":{"conditions":[{"type":"Failed","status":"True","reason":"BackoffLimitExceeded","message":"Job has reached the limit"}]}`
		late    = `"status":{"conditions":[{"type":"Failed","status":"True","reason":"DeadlineExceeded","message":"too late"}]}`
		started = `"spec":{"nodeName":"n1","containers":[{"name":"demesne"}]},"status":{"phase":`
	)
	waiting := func(reason string) string {
		return started + `"Pending","containerStatuses":[{"name":"demesne","state":{"waiting":{"reason":"` + reason + `","message":"no x"}}}]}`
	}
	for _, c := range []struct {
		name, job, pod, event string
		want                  jobs.State
	}{
		{"new", "", "", "", jobs.State{Status: jobs.Queued}},
		{"quota", "", "", `Error creating: pods "x" is forbidden: exceeded quota: small`, jobs.State{Status: jobs.Queued, Reason: "exceeded quota: small"}},
		{"no machine", "", `"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/2"}]}`, "",
			jobs.State{Status: jobs.Queued, Reason: "Unschedulable: 0/2"}},
		{"creating", "", waiting("ContainerCreating"), "", jobs.State{Status: jobs.Queued, Node: "n1"}},
		{"pull failed once", "", waiting("ErrImagePull"), "", jobs.State{Status: jobs.Queued, Reason: "ErrImagePull: no x", Node: "n1"}},
		{"no image", "", waiting("ImagePullBackOff"), "", jobs.State{Status: jobs.Failed, Reason: "ImagePullBackOff: no x", Node: "n1"}},
		{"running", "", started + `"Running"}`, "", jobs.State{Status: jobs.Running, Node: "n1"}},
		{"ending", `"metadata":{"name":"job-1","deletionTimestamp":"2026-01-02T03:04:05Z"}`, started + `"Running"}`, "", jobs.State{Status: jobs.Running, Reason: "ends", Node: "n1"}},
		{"out of memory", done, started + `"Failed","containerStatuses":[{"name":"demesne","state":{"terminated":{"exitCode":137,"reason":"OOMKilled"}}}]}`, "",
			jobs.State{Status: jobs.Failed, Reason: "OOMKilled, exit code 137", Node: "n1"}},
		{"evicted", done, started + `"Failed","reason":"Evicted","message":"low on disk"}`, "", jobs.State{Status: jobs.Failed, Reason: "Evicted: low on disk", Node: "n1"}},
		{"evicted, starts again", "", started + `"Failed","reason":"Evicted","message":"low on disk"}`, "", jobs.State{Status: jobs.Queued, Reason: "Evicted: low on disk", Node: "n1"}},
		{"deadline", late, "", "", jobs.State{Status: jobs.Failed, Reason: "DeadlineExceeded: too late"}},
		{"pod removed", done, "", "", jobs.State{Status: jobs.Failed, Reason: "BackoffLimitExceeded: Job has reached the limit"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := `{"metadata":{"name":"job-1"}}`
			switch {
			case strings.HasPrefix(c.job, `"metadata"`):
				job = "{" + c.job + "}"
			case c.job != "":
				job = `{"metadata":{"name":"job-1"},` + c.job + `}`
			}
			pods, events := "", ""
			if c.pod != "" {
				pods = `{"metadata":{"name":"old","creationTimestamp":"2026-01-02T03:04:05Z","labels":{"demesne.job":"job-1"}},"status":{"phase":"Failed","reason":"Old"}},
{"metadata":{"name":"new","creationTimestamp":"2026-01-02T03:04:06Z","labels":{"demesne.job":"job-1"}},` + c.pod + `}`
			}
			if c.event != "" {
				b, _ := json.Marshal(map[string]string{"message": c.event})
				events = string(b)
			}
			newServer(t, map[string]answer{
				"GET /apis/batch/v1/namespaces/work/jobs": {200, `{"items":[` + job + `]}`},
				"GET /api/v1/namespaces/work/pods":        {200, `{"items":[` + pods + `]}`},
				"GET /api/v1/namespaces/work/events":      {200, `{"items":[` + events + `]}`},
			})
			var out bytes.Buffer
			if err := serve(t.Context(), engines.States, "", []string{"job-1", "job-2"}, nil, &out); err != nil {
				t.Fatal(err)
			}
			var got map[string]jobs.State
			if json.Unmarshal(out.Bytes(), &got) != nil || len(got) != 1 || got["job-1"] != c.want {
				t.Errorf("%s", out.String())
			}
		})
	}
}

// TestOutput reads the log of a pod: of none, of one that waits, of one that a watch finds, and of one that cannot start.
func TestOutput(t *testing.T) {
	const (
		jobs = "GET /apis/batch/v1/namespaces/work/jobs"
		pods = "GET /api/v1/namespaces/work/pods"
		log  = "GET /api/v1/namespaces/work/pods/p/log"
	)
	pod := func(state string) string {
		return `{"metadata":{"name":"p","creationTimestamp":"2026-01-02T03:04:06Z","labels":{"demesne.job":"job-1"}},"spec":{"containers":[{"name":"demesne"}]},"status":{"phase":"Pending","containerStatuses":[{"name":"demesne","state":` + state + `}]}}`
	}
	waits, runs, stuck := pod(`{"waiting":{"reason":"ContainerCreating"}}`), pod(`{"running":{}}`), pod(`{"waiting":{"reason":"InvalidImageName"}}`)
	for _, c := range []struct{ verb, pods, want string }{
		{kubernetes.Output, "", ""}, {kubernetes.Output, waits, ""}, {kubernetes.Output, runs, "text"}, {kubernetes.Follow, runs, "text"}, {kubernetes.Follow, stuck, ""},
	} {
		newServer(t, map[string]answer{jobs: {200, `{"items":[{}]}`}, pods: {200, `{"items":[` + c.pods + `]}`}, log: {200, "text"}})
		var out bytes.Buffer
		if err := serve(t.Context(), c.verb, "", []string{"job-1"}, nil, &out); err != nil || out.String() != c.want {
			t.Errorf("%s %.200s: %q, %v", c.verb, c.pods, out.String(), err)
		}
	}
	s := newServer(t, map[string]answer{log: {200, "text"}})
	asked := 0
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/log"):
			io.WriteString(w, "text")
		case strings.HasSuffix(r.URL.Path, "/jobs"):
			io.WriteString(w, `{"items":[{}]}`)
		case r.URL.Query().Get("watch") == "":
			io.WriteString(w, `{"metadata":{"resourceVersion":"7"},"items":[`+waits+`]}`)
		case asked == 0: // the server ends a watch at any time
			asked++
		case r.URL.Query().Get("resourceVersion") == "7":
			io.WriteString(w, `{"type":"MODIFIED","object":`+waits+`}`+"\n"+`{"type":"MODIFIED","object":`+runs+`}`+"\n")
		}
	})
	var out bytes.Buffer
	if err := serve(t.Context(), kubernetes.Follow, "", []string{"job-1"}, nil, &out); err != nil || out.String() != "text" {
		t.Errorf("watched: %q, %v", out.String(), err)
	}
}

// TestRemove deletes a Job with its pods, and accepts one that does not exist.
func TestRemove(t *testing.T) {
	const key = "DELETE /apis/batch/v1/namespaces/work/jobs/job-1"
	s := newServer(t, map[string]answer{key: {200, "{}"}})
	for range 2 {
		if err := serve(t.Context(), engines.Cancel, "", []string{"job-1"}, nil, nil); err != nil || !strings.Contains(s.bodies[key], "Foreground") {
			t.Errorf("%v: %q", err, s.bodies)
		}
		delete(s.answers, key)
	}
	if err := serve(t.Context(), engines.Cancel, "", nil, nil, nil); err == nil {
		t.Error("no id")
	}
}

// TestList makes the Job of a list, whose PodTemplate allows two pods, and its ConfigMaps.
func TestList(t *testing.T) {
	const (
		at  = "/apis/batch/v1/namespaces/work/jobs"
		cms = "POST /api/v1/namespaces/work/configmaps"
		key = "GET /api/v1/namespaces/work/podtemplates/demesne"
	)
	noted := `{"metadata":{"annotations":{"demesne.pods":"2"}},` + template[1:]
	s := newServer(t, map[string]answer{key: {200, noted}, "POST " + at: {201, `{"metadata":{"uid":"u1"}}`}, cms: {201, "{}"}, "DELETE " + at + "/job-1": {200, "{}"}})
	submit := func(p jobs.Process) error {
		text, _ := json.Marshal(p)
		return serve(t.Context(), engines.Submit, "", nil, bytes.NewReader(text), io.Discard)
	}
	p := jobs.Process{ID: "job-1", Request: []byte(`{"map":["$$"]}`), List: jobs.List{Items: []string{"a", "b", "c"}}, Needs: jobs.Needs{Time: time.Minute}}
	if err := submit(p); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"completionMode":"Indexed"`, `"completions":2,`, `"parallelism":2,`, `"backoffLimitPerIndex":0`, `"activeDeadlineSeconds":240`, `"demesne.items":"3"`, `"demesne.list":"job-1"`,
		`"{\"map\":[\"$$$$\"]}","/run/demesne-list","$(NODE_NAME)","$(JOB_COMPLETION_INDEX)","2"`, `"sources":[{"configMap":{"name":"job-1-0"}}]`} {
		if got := s.bodies["POST "+at]; !strings.Contains(got, want) || strings.Contains(got, `"backoffLimit"`) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	if got := s.bodies[cms]; !strings.Contains(got, `"items.0":"YQpiCmMK"`) || !strings.Contains(got, `"uid":"u1"`) {
		t.Error(got)
	}
	delete(s.answers, cms)
	if err := submit(p); err == nil || !strings.Contains(s.bodies["DELETE "+at+"/job-1"], "Foreground") {
		t.Errorf("%v, %q", err, s.bodies)
	}
	p.List.Items = []string{strings.Repeat("a", maxParts*partSize)}
	if err := submit(p); err == nil || text.HintOf(err) == "" {
		t.Error(err)
	}
	s.answers[key] = answer{200, strings.Replace(noted, `"2"`, `"many"`, 1)}
	if err := submit(p); err == nil || !strings.Contains(err.Error(), "demesne.pods") {
		t.Error(err)
	}
}

// TestListPods reads the state and the logs of a list of three items in two pods, and cancels one in a pod of another.
func TestListPods(t *testing.T) {
	const (
		jobs  = "GET /apis/batch/v1/namespaces/work/jobs"
		pods  = "GET /api/v1/namespaces/work/pods"
		patch = "PATCH /api/v1/namespaces/work/configmaps/job-1-0"
	)
	pod := func(name, index, created string) string {
		return `{"metadata":{"name":"` + name + `","creationTimestamp":"2026-01-02T03:04:0` + created + `Z","labels":{"demesne.list":"job-1","` + indexLabel + `":"` + index + `"}},"spec":{"containers":[{"name":"demesne"}]},
"status":{"phase":"Failed","containerStatuses":[{"name":"demesne","state":{"terminated":{"exitCode":137,"reason":"OOMKilled"}}}]}}`
	}
	s := newServer(t, map[string]answer{
		jobs:            {200, `{"items":[{"metadata":{"name":"job-1","annotations":{"demesne.items":"3"}},"spec":{"completions":2},"status":{"conditions":[{"type":"Failed","status":"True","reason":"FailedIndexes"}]}}]}`},
		pods:            {200, `{"items":[` + pod("a", "0", "1") + "," + pod("b", "0", "2") + "," + pod("c", "1", "3") + `]}`},
		pods + "/a/log": {200, "no\n"}, pods + "/b/log": {200, "1/one\n3/th"}, pods + "/c/log": {200, "2/two\n"}, patch: {200, "{}"},
	})
	var out bytes.Buffer
	if err := serve(t.Context(), engines.States, "", []string{"job-1"}, nil, &out); err != nil || !strings.Contains(out.String(), "OOMKilled, exit code 137") {
		t.Errorf("%s, %v", out.String(), err)
	}
	out.Reset()
	if err := serve(t.Context(), kubernetes.Output, "", []string{"job-1"}, nil, &out); err != nil || out.String() != "1/one\n2/two\n" && out.String() != "2/two\n1/one\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	if err := serve(t.Context(), engines.Cancel, "", []string{"job-1/3"}, nil, nil); err != nil || !strings.Contains(s.bodies[patch], `"cancel.3"`) {
		t.Errorf("%v, %q", err, s.bodies)
	}
	if err := serve(t.Context(), kubernetes.Output, "", []string{"job-1/x"}, nil, &out); err == nil {
		t.Error("no number")
	}
	delete(s.answers, pods+"/c/log")
	s.answers[pods+"/b/log"] = answer{500, status(500, "InternalError", "dial tcp")}
	if err := serve(t.Context(), kubernetes.Output, "", []string{"job-1"}, nil, &out); err == nil || err.Error() != "dial tcp" {
		t.Error(err)
	}
}
