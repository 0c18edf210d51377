package integration

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// apiServer is a running demesne serve.
type apiServer struct {
	cmd      *exec.Cmd
	url, key string
	mu       sync.Mutex
	messages strings.Builder
}

// serveAPI starts demesne serve on a port of its own.
func (b *box) serveAPI(args ...string) *apiServer {
	b.Helper()
	s := &apiServer{cmd: b.command("demesne", append([]string{"serve", "--http", "127.0.0.1:0"}, args...)...)}
	errs, err := s.cmd.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.stop(syscall.SIGTERM) })
	listening := make(chan string, 1)
	go func() {
		at, buf := regexp.MustCompile(`listening on (https?://\S+)\n`), make([]byte, 4096)
		for {
			n, err := errs.Read(buf)
			s.mu.Lock()
			s.messages.Write(buf[:n])
			if m := at.FindStringSubmatch(s.messages.String()); m != nil && s.url == "" {
				s.url = m[1]
				listening <- m[1]
			}
			s.mu.Unlock()
			if err != nil {
				close(listening)
				return
			}
		}
	}()
	if <-listening == "" {
		b.Fatalf("the server ended: %s", s.said())
	}
	key, err := os.ReadFile(b.home + "/.demesne/server/token")
	if err != nil {
		b.Fatal(err)
	}
	s.key = strings.TrimSpace(string(key))
	return s
}

func (s *apiServer) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.messages.String()
}

// stop ends the server and waits for it.
func (s *apiServer) stop(sig syscall.Signal) {
	s.cmd.Process.Signal(sig)
	s.cmd.Wait()
}

// sdk returns a program that uses E2B's SDKs with the server.
func (b *box) sdk(s *apiServer, script string, args ...string) *exec.Cmd {
	b.Helper()
	from := os.Getenv("DEMESNE_E2B")
	if from == "" {
		from = "/var/tmp/demesne-e2b"
	}
	if _, err := os.Stat(from + "/installed"); err != nil {
		need(b, false, "integration/clients/e2b/install.sh")
	}
	dir := b.mkdir("sdk")
	text, err := os.ReadFile(script)
	if err != nil {
		b.Fatal(err)
	}
	if err := os.Symlink(from+"/node_modules", dir+"/node_modules"); err != nil && !os.IsExist(err) {
		b.Fatal(err)
	}
	path := b.file("sdk/"+filepath.Base(script), string(text), 0o644)
	node, err := exec.LookPath("node")
	if err != nil {
		need(b, false, "node")
	}
	cmd := b.command(node, append([]string{path}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Env, "E2B_API_URL="+s.url, "E2B_SANDBOX_URL="+s.url, "E2B_VOLUME_API_URL="+s.url, "E2B_API_KEY="+s.key,
		"TMPDIR="+dir, "E2E_IMAGE=local/base", "E2E_CLI="+from+"/node_modules/.bin/e2b")
	return cmd
}

// TestServeE2B calls every method of E2B's SDKs: the table is docs/guide/server/serve.md's.
func TestServeE2B(t *testing.T) {
	s := newSite(t, newGallery(t))
	s.base()
	api := s.serveAPI()
	r := s.finish(s.sdk(api, "clients/e2b/calls.mjs"))
	if r.code != 0 {
		t.Errorf("exit %d\n%s%s\nserver: %s", r.code, r.stdout, r.stderr, api.said())
	}
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	t.Log(lines[len(lines)-1])
	api.stop(syscall.SIGTERM)
	s.sweep()
}

// TestServeKilled checks that a killed server's sandboxes are found by the next one, with their files, tokens and
// metadata, and that one whose time has passed is removed.
func TestServeKilled(t *testing.T) {
	b := newBox(t)
	api := b.serveAPI("--egress", "none")
	if r := b.finish(b.sdk(api, "clients/e2b/killed.mjs", "before")); r.code != 0 {
		t.Fatalf("%+v\n%s", r, api.said())
	}
	api.stop(syscall.SIGKILL)
	api = b.serveAPI("--egress", "none")
	if r := b.finish(b.sdk(api, "clients/e2b/killed.mjs", "after")); r.code != 0 {
		t.Errorf("%+v\n%s", r, api.said())
	}
}

// TestServeKilledAny kills the server while clients make and end sandboxes and secrets. The next one has all that was
// answered to a client, and nothing of what was not stays in the runner or the vault.
func TestServeKilledAny(t *testing.T) {
	b := newBox(t)
	var api *apiServer
	const rounds = 2
	for round := range rounds {
		api = b.serveAPI("--egress", "none")
		churn := b.sdk(api, "clients/e2b/churn.mjs", "churn")
		if err := churn.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(400+rand.IntN(1600)) * time.Millisecond) // another moment in each round
		api.stop(syscall.SIGKILL)
		churn.Wait()
		api = b.serveAPI("--egress", "none")
		r := b.finish(b.sdk(api, "clients/e2b/churn.mjs", "check"))
		if r.code != 0 {
			t.Fatalf("round %d: %+v\n%s", round, r, api.said())
		}
		listed := strings.Split(strings.TrimRight(r.stdout, "\n"), "\n")
		sandboxes, secrets := strings.Fields(listed[0]), strings.Fields(strings.Join(listed[1:], " "))
		eventually(t, "the runner to have only the sandboxes of the API", func() bool {
			return len(strings.Fields(b.demesne("ls", "-q").stdout)) == len(sandboxes)
		})
		stored := strings.Count(b.demesne("secret", "list", "--namespace", "e2b:").stdout, "seci")
		if stored > len(secrets) || stored < len(secrets)-3*(round+1) { // each kill may leave three whose value was not stored, and that were not answered
			t.Errorf("round %d: %d secrets, and %d values", round, len(secrets), stored)
		}
		if round < rounds-1 {
			api.stop(syscall.SIGKILL)
		}
	}
	if r := b.finish(b.sdk(api, "clients/e2b/churn.mjs", "clear")); r.code != 0 {
		t.Errorf("%+v\n%s", r, api.said())
	}
	// The runner may be making a sandbox for the killed server, so the next one keeps its record for a time.
	eventually(t, "the records to be gone", func() bool { return len(names(b.home+"/.demesne/server/e2b/sandboxes")) == 0 })
}

// TestServeGuard checks who reaches the API at all.
func TestServeGuard(t *testing.T) {
	b := newBox(t)
	api := b.serveAPI("--egress", "none")
	if st, err := os.Stat(b.home + "/.demesne/server/token"); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("token: %v %v", st, err)
	}
	for _, c := range []struct {
		name, method, path, key, value string
		want                           int
	}{
		{"no key", "GET", "/v2/sandboxes", "X", "", 401},
		{"a wrong key", "GET", "/v2/sandboxes", "X-API-KEY", api.key + "x", 401},
		{"a name of its own", "GET", "/v2/sandboxes", "Host", "evil.example", 403},
		{"a page", "GET", "/v2/sandboxes", "Origin", "https://evil.example", 403},
		{"the page of a sandbox", "GET", "/v2/sandboxes", "Origin", "http://3000-ix.localhost", 403},
		{"an unknown sandbox", "GET", "/health", "E2b-Sandbox-Id", "inone", 502},
		{"an unsigned file", "GET", "/files?path=/etc/passwd&signature=v1_x", "X", "", 401},
		{"a volume", "GET", "/volumecontent/volx/file?path=/a", "Authorization", "Bearer x", 401},
		{"an upload", "PUT", "/templatefiles/x/y/z", "X", "", 401},
		{"health", "GET", "/health", "X", "", 204},
	} {
		req, err := http.NewRequest(c.method, api.url+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(c.key, c.value)
		if c.key == "Host" {
			req.Host = c.value
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.want || c.want >= 400 && !strings.Contains(string(text), `"code":`) {
			t.Errorf("%s: %d %s, want %d", c.name, resp.StatusCode, text, c.want)
		}
	}
	if r := b.finish(b.command("demesne", "serve", "--http", "127.0.0.1:0")); r.code != 1 || !strings.Contains(r.stderr, "another server uses") {
		t.Errorf("a second server: %+v", r)
	}
	api.stop(syscall.SIGTERM)
	for _, addr := range []string{"0.0.0.0:0", ":0"} {
		if r := b.finish(b.command("demesne", "serve", "--http", addr)); r.code != 1 || !strings.Contains(r.stderr, "other machines can reach this address") {
			t.Errorf("%s: %+v", addr, r)
		}
	}
}

// TestServePauseSoon pauses sandboxes at the moment at which they are created, while the server still looks for their
// account. They answer after they were resumed.
func TestServePauseSoon(t *testing.T) {
	b := newBox(t)
	api := b.serveAPI("--egress", "none")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				var made struct {
					ID string `json:"sandboxID"`
				}
				if err := json.Unmarshal([]byte(api.ask(t, "POST", "/v2/sandboxes", `{"templateID": "base"}`, 201)), &made); err != nil {
					t.Error(err)
					return
				}
				api.ask(t, "POST", "/sandboxes/"+made.ID+"/pause", "{}", 204)
				api.ask(t, "POST", "/sandboxes/"+made.ID+"/connect", `{"timeout": 60}`, 201)
				api.ask(t, "DELETE", "/sandboxes/"+made.ID, "", 204)
			}
		})
	}
	wg.Wait()
}
