package session_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"demesne/runner"
	"demesne/session"
)

// A frontend turns its own requests into session's options, and results into its own answers. This one is an HTTP API:
//
//	POST   /run                          run the body, shell text, in a sandbox of its own
//	POST   /sandboxes                    make a persistent sandbox; the answer is its id
//	POST   /sandboxes/ID                 run the body in it
//	PUT    /sandboxes/ID/PATH?from=FILE  copy a file of the host into it
//	GET    /sandboxes/ID/PATH?to=FILE    copy a file out of it
//	DELETE /sandboxes/ID                 remove it with its files
//
// A real one would also decide which client may do what: package session does not.
type frontend struct {
	sessions *session.Service
	allow    func(name string) bool // decides about the names that a run wants to reach
}

func (f *frontend) handler() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("POST /run", f.run)
	m.HandleFunc("POST /sandboxes", f.create)
	m.HandleFunc("POST /sandboxes/{id}", f.exec)
	m.HandleFunc("PUT /sandboxes/{id}/{path...}", func(w http.ResponseWriter, r *http.Request) {
		f.copy(w, r, session.Place{Path: r.FormValue("from")}, f.inside(r))
	})
	m.HandleFunc("GET /sandboxes/{id}/{path...}", func(w http.ResponseWriter, r *http.Request) {
		f.copy(w, r, f.inside(r), session.Place{Path: r.FormValue("to")})
	})
	m.HandleFunc("DELETE /sandboxes/{id}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, "", f.sessions.Remove(r.Context(), r.PathValue("id")))
	})
	return m
}

// run asks about every name, because no rule covers any.
func (f *frontend) run(w http.ResponseWriter, r *http.Request) {
	c := session.CreateOptions{Egress: session.Egress{Ask: runner.AskTime}}
	ask := func(q runner.Question, _ []string) (allow, answered bool) { return f.allow(q.Name), true }
	done, err := f.sessions.Run(r.Context(), c, command(r), session.Callbacks{Ask: ask})
	answer(w, result(done), err)
}

// create answers with an id, and then lets the runner know that the client has it. Without that the runner removes the
// sandbox soon after this program.
func (f *frontend) create(w http.ResponseWriter, r *http.Request) {
	sb, err := f.sessions.Create(r.Context(), session.CreateOptions{}, session.Callbacks{})
	if err != nil {
		answer(w, "", err)
		return
	}
	answer(w, sb.ID, nil)
	f.sessions.Open(context.WithoutCancel(r.Context()), sb.ID, session.Callbacks{})
}

func (f *frontend) exec(w http.ResponseWriter, r *http.Request) {
	done, err := f.sessions.Exec(r.Context(), r.PathValue("id"), command(r), session.Callbacks{})
	answer(w, result(done), err)
}

func (f *frontend) copy(w http.ResponseWriter, r *http.Request, from, to session.Place) {
	_, err := f.sessions.Copy(r.Context(), from, to, session.Callbacks{})
	answer(w, "", err)
}

func (f *frontend) inside(r *http.Request) session.Place {
	return session.Place{Sandbox: r.PathValue("id"), Path: "/" + r.PathValue("path")}
}

func command(r *http.Request) session.RunOptions {
	text, _ := io.ReadAll(r.Body) // a client that goes away ends the call: see Run
	return session.RunOptions{Command: runner.Command{Argv: []string{"bash", "-c", string(text)}}}
}

func result(d *session.RunResult) string {
	if d == nil {
		return ""
	}
	return fmt.Sprintf("exit code %d, denied %d\n%s%s", d.ExitCode, len(d.Denied), d.Stdout.Text, d.Stderr.Text)
}

func answer(w http.ResponseWriter, text string, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprint(w, text)
}

// TestFrontend drives the frontend as an HTTP client does, with the kernel's own sandboxes.
func TestFrontend(t *testing.T) {
	dir := place(t)
	asked := make(chan string, 10)
	f := &frontend{session.New(session.Options{}), func(name string) bool { asked <- name; return false }}
	t.Cleanup(f.sessions.Close)
	do := func(method, path, body, want string) string {
		t.Helper()
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		w := httptest.NewRecorder()
		f.handler().ServeHTTP(w, r)
		if got := w.Body.String(); w.Code != http.StatusOK || !strings.Contains(got, want) {
			t.Errorf("%s %s: %d %q, want %q", method, path, w.Code, got, want)
		}
		return w.Body.String()
	}
	do("POST", "/run", "echo hello; exit 3", "exit code 3, denied 0\nhello\n")
	do("POST", "/run", "exec 3<>/dev/tcp/asked.test/80 && head -1 <&3", "denied 1")
	if len(asked) != 1 || <-asked != "asked.test" {
		t.Error("asked.test was not asked about")
	}
	id := do("POST", "/sandboxes", "", "")
	if err := os.WriteFile(dir+"/in", []byte("copied"), 0o644); err != nil {
		t.Fatal(err)
	}
	do("PUT", "/sandboxes/"+id+"/tmp/f?from="+dir+"/in", "", "")
	do("POST", "/sandboxes/"+id, "cat /tmp/f; echo more >>/tmp/f", "exit code 0, denied 0\ncopied")
	do("GET", "/sandboxes/"+id+"/tmp/f?to="+dir+"/back", "", "")
	if got, _ := os.ReadFile(dir + "/back"); string(got) != "copiedmore\n" {
		t.Errorf("back: %q", got)
	}
	do("DELETE", "/sandboxes/"+id, "", "")
}

// place returns a directory for all that the test makes, and finds or builds demesne's programs.
func place(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "frontend.")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	bin := os.Getenv("DEMESNE_BIN")
	if bin == "" {
		bin = dir + "/bin"
		out, err := exec.Command("sh", "-c", `go build -o "$0/" demesne/cmd/demesne-runner && CGO_ENABLED=0 go build -o "$0/" demesne/cmd/demesne-init demesne/cmd/demesne-proxy`, bin).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for name, value := range map[string]string{
		"DEMESNE_LIBEXEC": bin, "HOME": dir, "XDG_RUNTIME_DIR": dir + "/run", "DEMESNE_SANDBOX_ROOT": dir + "/kept",
		"DEMESNE_OUTPUT_ROOT": dir + "/out", "DEMESNE_LINGER": "0",
	} {
		t.Setenv(name, value)
	}
	if err := os.Mkdir(dir+"/run", 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}
