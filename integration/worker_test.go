package integration

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// TestWorker checks that workers start again when they end, that each is in the job with its own log, and that TERM gives them
// their time to end.
func TestWorker(t *testing.T) {
	b := newBox(t)
	b.keepsJobs()
	cmd := b.command("demesne", "worker", "--count", "2", "--label", "queue=build", "--memory", "256m", "--", "sh", "-c",
		`trap 'sleep 2; echo "end $1"; exit 0' TERM; echo "start $1"; test "$1" = 2 || exit 3; sleep 600 & wait`, "sh", "{}")
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	job := ""
	eventually(t, "the first worker starts again, and the second runs", func() bool {
		if job = strings.TrimSpace(b.must("jobs", "-q", "--label", "queue=build")); job == "" {
			return false
		}
		first, second := b.demesne("logs", job+"/1"), b.demesne("logs", job+"/2")
		return strings.Count(first.stdout, "start 1\n") > 1 && strings.Contains(first.stderr, "worker: exited with code 3; starts again in 1s") && second.stdout == "start 2\n"
	})
	if all := b.items(job); len(all) != 2 || all[1].Status != "running" {
		t.Errorf("%+v", all)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil || !strings.HasSuffix(errs.String(), "worker: drained\n") {
		t.Errorf("%v: %s", err, errs.String())
	}
	if r := b.demesne("logs", job+"/2"); r.stdout != "start 2\nend 2\n" {
		t.Errorf("%+v", r)
	}
	cmd = b.command("demesne", "worker", "--label", "queue=other", "--", "sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other job", func() bool {
		job = strings.TrimSpace(b.must("jobs", "-q", "--label", "queue=other"))
		return job != ""
	})
	b.must("cancel", job)
	if err := cmd.Wait(); err != nil {
		t.Errorf("after cancel: %v", err)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"no command given", nil},
		{"--count: cannot be combined with --each", []string{"--count", "2", "--each", "a", "--", "true"}},
		{"not claude or codex", []string{"--for", "other"}},
		{"--for codex: needs an environment's id", []string{"--for", "codex", "--", "--remote", "https://x.test"}},
		{"--item: needs --for claude", []string{"--item", "--", "true"}},
		{"has a line break", []string{"--each", "a\nb", "--", "true"}},
		{"flag --key: unknown", []string{"--key", "k", "--", "true"}},
		{"--grace: more than 50s", []string{"--grace", "1h", "--", "true"}},
	} {
		if r := b.demesne(append([]string{"worker"}, c.args...)...); r.code != 125 || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%q: %+v", c.want, r)
		}
	}
}

// received returns the next line of what a server was sent.
func received(t testing.TB, from <-chan string) string {
	t.Helper()
	select {
	case line := <-from:
		return line
	case <-time.After(patience):
		t.Fatal("the server was sent nothing")
	}
	return ""
}

// vendor plays Claude's side of self-hosted environments, as far as the vendor's SDK and documents say what it does: a queue of
// work, leases, and one tool call for each session.
type vendor struct {
	*internet
	commands chan string // of a session each
	mu       sync.Mutex
	calls    map[string]string // of sessions
	results  chan string       // session, bearer and text of each tool's result
	posted   map[string]chan struct{}
}

func (v *vendor) session(id string) (command string, answered chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.calls[id], v.posted[id]
}

func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bearer := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	at := regexp.MustCompile(`^/v1/(?:environments/env_1/work|sessions)/?([^/]*)/?(.*)$`).FindStringSubmatch(r.URL.Path)
	if at == nil {
		http.NotFound(w, r)
		return
	}
	v.saw(bearer + " " + r.URL.Path)
	id := at[1]
	w.Header().Set("Content-Type", "application/json")
	switch at[2] {
	case "": // poll, or a session
		if id != "poll" {
			fmt.Fprintf(w, `{"id":%q,"status":"running","resources":[],"agent":{"skills":[]}}`, id)
			return
		}
		select {
		case command := <-v.commands:
			v.mu.Lock()
			id = fmt.Sprintf("sesn_%d", len(v.calls)+1)
			v.calls[id], v.posted[id] = command, make(chan struct{})
			v.mu.Unlock()
			secret := base64.RawURLEncoding.EncodeToString([]byte(`{"sessions_token":"token-of-` + id + `"}`))
			fmt.Fprintf(w, `{"id":"work_%s","environment_id":"env_1","type":"work","secret":%q,"data":{"type":"session","id":%q}}`, id, secret, id)
		default:
			io.WriteString(w, "null")
		}
	case "heartbeat":
		io.WriteString(w, `{"last_heartbeat":"1","lease_extended":true,"state":"active","ttl_seconds":60,"type":"work_heartbeat"}`)
	case "events":
		if r.Method == http.MethodGet {
			io.WriteString(w, `{"data":[],"has_more":false,"next_page":null}`)
			return
		}
		text, _ := io.ReadAll(r.Body)
		v.results <- id + " " + bearer + " " + string(text)
		_, answered := v.session(id)
		close(answered)
		io.WriteString(w, `{"data":[]}`)
	case "events/stream":
		command, answered := v.session(id)
		w.Header().Set("Content-Type", "text/event-stream")
		send := func(kind string, more map[string]any) {
			more["type"], more["id"] = kind, "sevt_"+kind
			data, _ := json.Marshal(more)
			fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, data)
			w.(http.Flusher).Flush()
		}
		send("agent.tool_use", map[string]any{"name": "bash", "input": map[string]any{"command": command}, "evaluated_permission": "allow"})
		select {
		case <-answered:
			send("session.status_terminated", map[string]any{})
		case <-r.Context().Done():
		}
	default: // ack, stop
		io.WriteString(w, "{}")
	}
}

// TestWorkerClaude serves sessions of Claude's agents with the vendor's own SDK: each in a sandbox of its own, which has
// placeholders for the key of the queue and the token of the session, and reaches nothing else.
func TestWorkerClaude(t *testing.T) {
	onInternet(t, func(n *internet) {
		n.keepsJobs()
		modules := programsDir() + "/editors/node_modules"
		need(n, exists(modules+"/@anthropic-ai/sdk"), "integration/agents.sh")
		text, err := os.ReadFile("clients/hands/ant.cjs")
		if err != nil {
			n.Fatal(err)
		}
		ant := n.file("tools/ant", "#!"+program(n, "node")+"\n"+string(text), 0o755)
		v := &vendor{internet: n, commands: make(chan string, 9), calls: map[string]string{}, results: make(chan string, 9), posted: map[string]chan struct{}{}}
		cert := n.trusted("8.3.3.3 api.anthropic.com\n8.4.4.4 elsewhere.test\n")
		server := &http.Server{Handler: v}
		n.Cleanup(func() { server.Close() })
		go server.Serve(tls.NewListener(n.listen("8.3.3.3:443"), &tls.Config{Certificates: []tls.Certificate{cert}}))

		n.extra = append(n.extra, "PATH="+filepath.Dir(ant)+":"+os.Getenv("PATH"), "MODULES="+modules, "NODE_EXTRA_CA_CERTS="+n.ca,
			"ANTHROPIC_ENVIRONMENT_ID=env_1", "ANTHROPIC_ENVIRONMENT_KEY="+canary)
		look := `cat /workspace/mark; touch /workspace/mark; cat /proc/*/environ | tr '\0' '\n' | grep -E '` + canary + `|token-of|SESSION_ID'; curl -sS -m 5 https://elsewhere.test/; echo done`
		v.commands <- look
		v.commands <- look
		cmd := n.command("demesne", "worker", "--count", "2", "--memory", "1g", "--env", "MODULES", "--mount", modules+":ro", "--mount", filepath.Dir(ant)+":/opt/tools:ro",
			"--env", "PATH=/opt/tools:/usr/local/bin:/usr/bin:/bin", "--for", "claude")
		var errs strings.Builder
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			n.Fatal(err)
		}
		n.Cleanup(func() {
			if n.Failed() {
				n.Logf("%s\n%q\n%+v", errs.String(), n.seen, n.demesne("logs", strings.TrimSpace(n.demesne("jobs", "-q").stdout)))
			}
		})
		for range 2 {
			got := received(n, v.results)
			id := strings.Fields(got)[0]
			if !strings.HasPrefix(got, id+" token-of-"+id+" ") || !strings.Contains(got, `ANTHROPIC_SESSION_ID=`+id) || !strings.Contains(got, "No such file") ||
				!strings.Contains(got, "done") || strings.Contains(got, canary) || strings.Contains(got[len(id)*2+10:], "token-of") {
				n.Errorf("%s", got)
			}
			eventually(n, "the item is stopped", func() bool { return n.heard("token-of-" + id + " /v1/environments/env_1/work/work_" + id + "/stop") })
		}
		if !n.heard(canary+" /v1/environments/env_1/work/poll") || n.heard("elsewhere.test") {
			n.Errorf("%q", n.seen)
		}
		// A third item is served by a worker that had one before. TERM ends it, and gives the item back. The command itself says that
		// it runs: a TERM before it has its shell ends the vendor's SDK with EPIPE.
		v.commands <- "curl -sS https://api.anthropic.com/v1/sessions/waits; sleep 600"
		eventually(n, "the command runs", func() bool { return n.heard("/v1/sessions/waits") })
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || !n.heard("token-of-sesn_3 /v1/environments/env_1/work/work_sesn_3/stop") {
			n.Errorf("%v: %s", err, errs.String())
		}
	})
}

// executor plays OpenAI's side of codex exec-server: a registry, and the relay that the registry names. The default
// transport ends in a Noise handshake that only the vendor's other half can make. Over the other one, direct, a command runs.
func executor(n *internet, output chan<- string) http.Handler {
	mux := http.NewServeMux()
	register := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		n.saw(r.Header.Get("Authorization") + " registers " + r.PathValue("id") + " " + string(body))
		io.WriteString(w, `{"environment_id":"`+r.PathValue("id")+`","registration_id":"r1","executor_registration_id":"r1","transport":"direct_jsonrpc_v1",`+
			`"security_profile":"noise_hybrid_ik_v1","url":"wss://codex-cloud-environments.chatgpt.com/`+r.PathValue("id")+`"}`)
	}
	mux.HandleFunc("POST api.openai.com/v1/cloud/environment/{id}/register", register)
	mux.HandleFunc("POST api.openai.com/v1/cloud/environment/{id}/direct/register", register)
	mux.HandleFunc("GET codex-cloud-environments.chatgpt.com/{id}", func(w http.ResponseWriter, r *http.Request) {
		n.saw("connects " + r.PathValue("id"))
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		if r.PathValue("id") != "env_direct" {
			c.Read(r.Context())
			return
		}
		for _, line := range []string{`{"id":1,"method":"initialize","params":{"clientName":"test"}}`, `{"method":"initialized","params":{}}`,
			`{"id":2,"method":"process/start","params":{"processId":"p","argv":["sh","-c","id -u; pwd; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -e KEY="],"cwd":"file:///workspace","env":{"PATH":"/usr/bin:/bin"},"tty":false,"pipeStdin":false,"arg0":null}}`} {
			c.Write(r.Context(), websocket.MessageText, []byte(line))
		}
		for {
			var event struct {
				Method string
				Params struct{ Chunk []byte }
			}
			_, line, err := c.Read(r.Context())
			if json.Unmarshal(line, &event); err != nil {
				return
			}
			output <- string(event.Params.Chunk)
		}
	})
	return mux
}

// leaf returns a certificate for names that the authority ca signed: rustls takes no authority's own one from a server.
func leaf(t testing.TB, ca tls.Certificate, names ...string) tls.Certificate {
	t.Helper()
	parent, err := x509.ParseCertificate(ca.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: names, NotBefore: parent.NotBefore, NotAfter: parent.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, parent.PublicKey, ca.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: ca.PrivateKey}
}

// TestWorkerCodex serves environments of OpenAI's agents with the real codex exec-server.
func TestWorkerCodex(t *testing.T) {
	onInternet(t, func(n *internet) {
		n.keepsJobs()
		found, _ := filepath.Glob(programsDir() + "/node_modules/@openai/codex-linux-*/vendor/*/bin/codex")
		need(n, len(found) == 1, "integration/agents.sh")
		cert := leaf(n, n.trusted("8.3.3.3 api.openai.com codex-cloud-environments.chatgpt.com\n"), "api.openai.com", "codex-cloud-environments.chatgpt.com")
		output := make(chan string, 99)
		server := &http.Server{Handler: executor(n, output)}
		n.Cleanup(func() { server.Close() })
		go server.Serve(tls.NewListener(n.listen("8.3.3.3:443"), &tls.Config{Certificates: []tls.Certificate{cert}}))
		n.extra = append(n.extra, "CODEX_API_KEY="+canary)
		serve := func(env string, more ...string) (stop func()) {
			args := []string{"worker", "--each", env, "--mount", filepath.Dir(found[0]) + ":/opt/codex:ro", "--env", "PATH=/opt/codex:/usr/bin:/bin",
				"--env", "AWS_ACCESS_KEY_ID=a", "--env", "AWS_SECRET_ACCESS_KEY=s", "--env", "AWS_REGION=r", "--for", "codex", "--", "--remote", "https://api.openai.com/v1"}
			cmd := n.command("demesne", append(args, more...)...)
			if err := cmd.Start(); err != nil {
				n.Fatal(err)
			}
			n.Cleanup(func() {
				if n.Failed() {
					n.Logf("%q %+v", n.seen, n.demesne("logs", strings.Fields(n.demesne("jobs", "-q").stdout)[0]))
				}
			})
			return func() {
				cmd.Process.Signal(syscall.SIGTERM)
				if err := cmd.Wait(); err != nil {
					n.Errorf("drain: %v", err)
				}
			}
		}
		stop := serve("env_noise")
		eventually(n, "it connects", func() bool {
			return n.heard("Bearer "+canary+` registers env_noise {"security_profile":"noise_hybrid_ik_v1"`) && n.heard("connects env_noise")
		})
		stop()
		stop = serve("env_direct", "--remote-transport", "direct", "--aws-sigv4")
		got := ""
		for !strings.Contains(got, "KEY=") {
			got += received(n, output)
		}
		stop()
		if !strings.HasPrefix(got, "0\n/workspace\n") || strings.Contains(got, canary) {
			n.Errorf("%q", got)
		}
	})
}
