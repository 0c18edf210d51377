package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"demesne/runner"
	"demesne/runner/tarball"
	"demesne/server"
)

// dirVar names the store's directory and makes the test binary act as a run's process.
const dirVar = "DEMESNE_TEST_RUNS"

func TestMain(m *testing.M) {
	dir := os.Getenv(dirVar)
	if dir == "" {
		os.Exit(m.Run())
	}
	s, err := Open(dir, 0, nil)
	if err == nil {
		err = s.Attend(context.Background(), os.Args[len(os.Args)-1], nil, execute)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// execute is a sandbox without a kernel: a command writes its own text.
func execute(ctx context.Context, r *Request, rec *Recorder) error {
	rec.Started("id", "name")
	for i, s := range r.Commands {
		out := rec.Command(i)
		switch s.Shell {
		case "die":
			os.Exit(3)
		case "stay":
			<-ctx.Done()
			return context.Cause(ctx)
		}
		io.WriteString(out.Stdout, s.Shell)
		out.Ended(&runner.Result{Reason: runner.Exited})
	}
	rec.Keep(func(to *os.Root, _ tarball.Limits) error {
		err := to.Mkdir(keptDir, 0o700)
		for _, s := range r.Commands {
			err = errors.Join(err, to.WriteFile(keptDir+"/"+s.Shell, []byte(s.Shell), 0o600))
		}
		return err
	})
	return nil
}

func open(t *testing.T) *Store {
	t.Helper()
	dir := t.TempDir()
	t.Setenv(dirVar, dir)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir, 0, []string{self})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func everything(string) bool { return true }

// start starts a run of shell commands, and waits for its end unless it stays.
func start(t *testing.T, s *Store, identifier string, commands ...string) *Run {
	t.Helper()
	r := &Request{Namespace: "team", Identifier: identifier}
	for _, c := range commands {
		r.Commands = append(r.Commands, Step{Shell: c})
	}
	run, err := s.Start(r)
	if err != nil {
		t.Fatal(err)
	}
	if commands[0] != "stay" {
		run, err = s.Wait(t.Context(), run.ID, time.Minute, everything)
	}
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// TestStore checks the ends of runs, also of one whose process is killed, and that another namespace sees none.
func TestStore(t *testing.T) {
	s := open(t)
	seen := make(chan Kind, 100)
	s.Observe = func(r Request, e Event) { seen <- e.Kind }
	run := start(t, s, "a", "one", "two")
	if run.State != Completed || run.Commands[1].Stdout != "two" || len(run.Artifacts) != 2 || run.Sandbox != "id" || run.Ended.Before(run.Started) {
		t.Errorf("%+v", run)
	}
	var kinds []string
	for k := Kind(""); !k.over(); kinds = append(kinds, string(k)) {
		k = <-seen
	}
	if got := strings.Join(kinds, " "); got != "run_started command_started command_stdout command_finished command_started command_stdout command_finished artifacts_extracted run_finished" {
		t.Error(got)
	}
	if _, err := s.Get(run.ID, func(ns string) bool { return ns == "other" }); !errors.Is(err, ErrUnknown) {
		t.Errorf("another namespace: %v", err)
	}
	for _, id := range []string{"", "run-", "job-" + run.ID[4:], "run-../" + run.ID[4:], run.ID + "0"} {
		if _, err := s.Get(id, everything); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %v", id, err)
		}
	}
	run = start(t, s, "a", "die")
	if run.State != Failed || run.Error == "" || run.Commands[0].Status != waiting {
		t.Errorf("%+v", run)
	}
	for k := Kind(""); !k.over(); k = <-seen {
	}
	for range 2 { // a client that asks for its events does not end it again
		r := httptest.NewRequest("GET", EventsURL(run.ID), nil)
		s.serveEvents(httptest.NewRecorder(), r.WithContext(server.WithCaller(r.Context(), server.Caller{Namespace: "team"})))
	}
	start(t, s, "a", "one")
	if k := <-seen; k != runStarted {
		t.Errorf("after the end: %s", k)
	}
	stays := start(t, s, "a", "stay")
	for range 2 {
		if run, err := s.Cancel(t.Context(), stays.ID, everything); err != nil || run.State != Canceled {
			t.Errorf("%+v %v", run, err)
		}
	}
	if list, err := s.List(2, everything); err != nil || len(list) != 2 || list[0].ID != stays.ID {
		t.Errorf("%+v %v", list, err)
	}
}

// TestEvict checks that the oldest runs are removed, by number, age and space, and never one that goes on.
func TestEvict(t *testing.T) {
	s := open(t)
	stays := start(t, s, "z", "stay")
	first, second := start(t, s, "a", "one"), start(t, s, "b", "two")
	if n := s.evict(10, time.Hour, 1<<30); n != 0 {
		t.Errorf("%d runs were removed", n)
	}
	if n := s.evict(1, time.Hour, 1<<30); n != 1 {
		t.Errorf("%d runs were removed", n)
	}
	if _, err := s.Get(first.ID, everything); !errors.Is(err, ErrUnknown) || s.latest("team", "a") != "" || s.latest("team", "b") != jobOf(second.ID) {
		t.Errorf("%v", err)
	}
	if n := s.evict(10, 0, 1<<30); n != 1 {
		t.Errorf("%d runs were removed", n)
	}
	start(t, s, "b", "two")
	if n := s.evict(10, time.Hour, 0); n != 1 {
		t.Errorf("%d runs were removed", n)
	}
	if run, err := s.Cancel(t.Context(), stays.ID, everything); err != nil || run.State != Canceled {
		t.Errorf("%+v %v", run, err)
	}
}

// TestLeftOut checks that a run says which of its files were not kept.
func TestLeftOut(t *testing.T) {
	s := open(t)
	dir := t.TempDir() + "/job"
	for _, err := range []error{os.MkdirAll(dir+"/"+keptDir+"/d", 0o700), os.WriteFile(dir+"/"+keptDir+"/d/f", nil, 0o600), os.WriteFile(dir+"/"+keptDir+"/large", nil, 0o600), os.Truncate(dir+"/"+keptDir+"/large", maxFile+1)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if list, left, err := s.list(root); err != nil || len(list) != 1 || left != 1 || list[0].Path != "d/f" {
		t.Errorf("%+v %d %v", list, left, err)
	}
	if _, err := os.Lstat(dir + "/" + keptDir + "/large"); err == nil {
		t.Error("it was kept")
	}
}

// TestShare checks that a file that two runs have takes its space once.
func TestShare(t *testing.T) {
	s := open(t)
	var ids []os.FileInfo
	for range 2 {
		run := start(t, s, "a", "same")
		f, info, err := s.openArtifact("a", run.ID, "same", "team", everything)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		ids = append(ids, info)
	}
	if !os.SameFile(ids[0], ids[1]) {
		t.Error("there are two copies")
	}
}

// TestEvents checks the numbers of events for clients that return, and that a slow one misses events.
func TestEvents(t *testing.T) {
	f := &feed{news: make(chan struct{})}
	for range replayed + 50 {
		f.add([]line{{kind: commandStdout}}, false)
	}
	lines, over, _ := f.after(0)
	if len(lines) != replayed || lines[0].number != 51 || over {
		t.Errorf("%d from %d", len(lines), lines[0].number)
	}
	if lines, _, _ := f.after(replayed + 49); len(lines) != 1 {
		t.Errorf("%+v", lines)
	}
	s := open(t)
	run := start(t, s, "a", "one")
	h := s.Routes()["GET /mcp/events"]
	get := func(caller server.Caller, last string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", EventsURL(run.ID), nil)
		r.Header.Set("Last-Event-ID", last)
		w := httptest.NewRecorder()
		h(w, r.WithContext(server.WithCaller(r.Context(), caller)))
		return w
	}
	if w := get(server.Caller{Namespace: "team"}, ""); strings.Count(w.Body.String(), "\nevent: ") != 6 {
		t.Errorf("%s", w.Body)
	}
	if w := get(server.Caller{Namespace: "team"}, "5"); strings.Count(w.Body.String(), "\nevent: ") != 1 {
		t.Errorf("%s", w.Body)
	}
	if w := get(server.Caller{Namespace: "team"}, "6"); w.Code != http.StatusNoContent {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for _, c := range []server.Caller{{}, {Namespace: "other"}} {
		if w := get(c, ""); !strings.HasPrefix(w.Body.String(), "event: error\n") || strings.Contains(w.Body.String(), "one") {
			t.Errorf("%+v: %s", c, w.Body)
		}
	}
}

// TestRecorder checks the bounds of output: of a chunk, of a stream and of the log.
func TestRecorder(t *testing.T) { synctest.Test(t, testRecorder) }

func testRecorder(t *testing.T) {
	var log strings.Builder
	rec := &Recorder{job: "job-1", out: &log, left: 1 << 30, request: Request{Commands: []Step{{Shell: "x"}}}}
	o := rec.Command(0)
	for range 10 {
		io.WriteString(o.Stdout, strings.Repeat("ü", maxStream/10))
	}
	o.Stderr.Write([]byte{0xc3})
	time.Sleep(2 * chunkWait) // of the fake clock
	o.Stderr.Write([]byte{0xbc, 0xff})
	o.Ended(nil)
	run := Run{Commands: []Command{{}}}
	for _, l := range strings.Split(log.String(), "\n") {
		var e Event
		if json.Unmarshal([]byte(l), &e) == nil {
			run.apply(e)
		}
	}
	run.finish()
	c := run.Commands[0]
	if c.StdoutBytes != 2*(maxStream/10)*10 || len(c.Stdout) < maxStream-4 || len(c.Stdout) > maxStream+4 || !c.StdoutTruncated || c.Stderr != "ü\uFFFD" || c.Status != failed {
		t.Errorf("%d %d %+v %q", c.StdoutBytes, len(c.Stdout), c.Result, c.Stderr)
	}
	log.Reset()
	rec.left = 10 << 10
	o = rec.Command(0)
	for range 1000 {
		io.WriteString(o.Stdout, strings.Repeat("\x00", 1000))
	}
	o.Ended(&runner.Result{Reason: runner.OOM, ExitCode: 137})
	if log.Len() > 100<<10 || !strings.Contains(log.String(), `"status":"failed","reason":"oom"`) {
		t.Errorf("the log has %d bytes: %s", log.Len(), log.String()[max(log.Len()-300, 0):])
	}
}

// TestParse checks the forms of arguments that clients of mcp-sandboxd send.
func TestParse(t *testing.T) {
	r, err := Parse([]byte(`{"identifier":"a_B-1","commands":[{"shell":"/bin/bash","argv":["ls","-l"],"env":{"A":"1"},"timeout_ms":5},{"shell":false,"argv":["x"],"env":["A=2=3"],"cwd":"/c"},{"shell":" s "}],
		"options":{"default_env":["A=0","B=1"],"default_cwd":"/d","ttl_seconds":1e12,"await_completion":true,"as_user":"root","unknown":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	one, two := r.Commands[0], r.Commands[1]
	if one.Shell != "ls -l" || one.Argv != nil || one.Env["A"] != "1" || one.Env["B"] != "1" || one.Cwd != "/d" || one.TimeoutMS != 5 {
		t.Errorf("%+v", one)
	}
	if two.Shell != "" || two.Env["A"] != "2=3" || two.Cwd != "/c" || two.TimeoutMS != 120000 || r.Commands[2].Shell != "s" {
		t.Errorf("%+v", two)
	}
	if r.TTL != maxTTL || r.Await != awaitTime || !r.Root {
		t.Errorf("%+v", r)
	}
	for _, bad := range []string{
		``, `[]`, `{}`, `{"identifier":"a"}`, `{"identifier":"a","commands":[]}`, `{"identifier":"a/b","commands":[{"shell":"x"}]}`, `{"identifier":"a","commands":[{}]}`,
		`{"identifier":"a","commands":[{"shell":"x","cwd":"rel"}]}`, `{"identifier":"a","commands":[{"shell":"x","timeout_ms":-1}]}`, `{"identifier":"a","commands":[{"shell":"x","timeout_ms":1e300}]}`,
		`{"identifier":"a","commands":[{"shell":"x","env":["A"]}]}`, `{"identifier":"a","commands":[{"shell":"x","env":{"A=B":"1"}}]}`, `{"identifier":"a","commands":[{"shell":"x\u0000"}]}`,
		`{"identifier":"a","commands":[{"shell":7}]}`, `{"identifier":"a","commands":[{"shell":"x"}],"options":{"as_user":"me"}}`,
		`{"identifier":"a","commands":[` + strings.Repeat(`{"shell":"x"},`, 1000) + `{"shell":"x"}]}`, `{"identifier":"a","commands":[{"shell":"` + strings.Repeat("x", 1<<17) + `"}]}`,
		`{"identifier":"a","commands":[{"shell":"` + strings.Repeat(" ", 2<<20) + `x"}]}`,
	} {
		if r, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%.80s: %+v", bad, r)
		}
	}
}

// TestArtifactEscape checks that a link or a name cannot lead out of a run's files, whatever a sandbox left there.
func TestArtifactEscape(t *testing.T) {
	s := open(t)
	run := start(t, s, "a", "one")
	dir := filepath.Join(s.dir, jobOf(run.ID), keptDir)
	if err := errors.Join(os.Symlink("/etc", dir+"/etc"), os.Symlink("../job.json", dir+"/up"), os.Symlink("one", dir+"/same")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"etc/passwd", "up", "same", "../job.json", "/etc/passwd", ".", ""} {
		if f, _, err := s.openArtifact("a", run.ID, name, "team", everything); err == nil {
			t.Errorf("%q: %s is open", name, f.Name())
		}
	}
	if f, _, err := s.openArtifact("a", latestDir, "one", "team", everything); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
}

// FuzzParse checks that the arguments of a model give an error, or a request within its bounds.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"identifier":"a","commands":[{"shell":"echo","argv":["x"],"env":["A=b"],"cwd":"/","timeout_ms":1e300}],"options":{"ttl_seconds":-1,"await_completion":true,"as_user":"root"}}`))
	f.Add([]byte(`{"identifier":"a\n","commands":[{"shell":false,"argv":["\u0000"],"env":{"":"x"}}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := Parse(raw)
		if err != nil {
			return
		}
		if CheckIdentifier(r.Identifier) != nil || len(r.Commands) == 0 || len(r.Commands) > maxCommands || r.TTL <= 0 || r.TTL > maxTTL || r.Await < 0 || r.Await > maxAwait {
			t.Fatalf("%+v", r)
		}
		for _, s := range r.Commands {
			if s.check() != nil {
				t.Fatalf("%+v", s)
			}
		}
	})
}
