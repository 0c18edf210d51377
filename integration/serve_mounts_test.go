package integration

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"demesne/client"
)

// serveSocket starts demesne serve on a unix socket. send sends a request with a token, and returns the status and the answer.
func (b *box) serveSocket(args ...string) (send func(token, method, path, body string) (int, string), key string) {
	b.Helper()
	socket := b.dir + "/api.sock"
	cmd := b.command("demesne", append([]string{"serve", "--http", "unix:" + socket}, args...)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cmd.Process.Signal(syscall.SIGTERM); cmd.Wait() })
	web := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	b.Cleanup(web.CloseIdleConnections)
	send = func(token, method, path, body string) (int, string) {
		b.Helper()
		req, err := http.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("X-API-KEY", token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := web.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	eventually(b, "the server to listen", func() bool { status, _ := send("", "GET", "/health", ""); return status != 0 })
	text, err := os.ReadFile(b.home + "/.demesne/server/token")
	if err != nil {
		b.Fatal(err)
	}
	return send, strings.TrimSpace(string(text))
}

// TestServeMounts mounts directories of this machine over /v1: for the server's user at its socket, and what the operator lists
// for a namespace. A link that a caller planted leads nowhere.
func TestServeMounts(t *testing.T) {
	b := newBox(t)
	if b.uid > 0 {
		t.Skip("the socket is the other user's")
	}
	dir, err := filepath.EvalSymlinks(b.mkdir("project"))
	if err != nil {
		t.Fatal(err)
	}
	b.file("project/file", "content", 0o644)
	b.file("project/.git/config", "", 0o644)
	b.mkdir("project/shared")
	b.file("outside", "private", 0o600)
	send, key := b.serveSocket("--allowed-mounts", dir, "--allowed-mounts", dir+"/shared:rw")
	alice := strings.TrimSpace(b.cli("serve", "token", "add", "alice"))
	made := map[string]string{} // tokens by sandbox
	create := func(token string, mounts ...client.HostMount) (int, string) {
		t.Helper()
		q, _ := json.Marshal(client.CreateRequest{Mounts: mounts})
		status, text := send(token, "POST", "/v1/sandboxes", string(q))
		var sandbox client.Sandbox
		if json.Unmarshal([]byte(text), &sandbox); status == 201 {
			made[sandbox.ID] = token
			return status, sandbox.ID
		}
		return status, text
	}
	exec := func(token, id, command string) string {
		t.Helper()
		q, _ := json.Marshal(client.Command{Command: command})
		_, text := send(token, "POST", "/v1/sandboxes/"+id+"/exec", string(q))
		var r client.Result
		json.Unmarshal([]byte(text), &r)
		return r.Stdout.Text + r.Stderr.Text
	}
	_, id := create(key, client.HostMount{Source: dir, Target: "/p", Mode: "rw"})
	if got := exec(key, id, "cat /p/file; echo new > /p/written; echo x >> /p/.git/config || echo guarded"); !strings.HasPrefix(got, "content") || !strings.Contains(got, "guarded") {
		t.Errorf("rw: %q", got)
	}
	if text, err := os.ReadFile(dir + "/written"); err != nil || string(text) != "new\n" {
		t.Errorf("rw wrote %q %v", text, err)
	}
	_, id = create(key, client.HostMount{Source: dir + "/file"})
	if got := exec(key, id, "cat "+dir+"/file; echo x > "+dir+"/file || echo refused"); !strings.HasPrefix(got, "content") || !strings.Contains(got, "refused") {
		t.Errorf("ro: %q", got)
	}
	_, id = create(key, client.HostMount{Source: dir, Target: "/p", Mode: "cow"})
	if got := exec(key, id, "echo changed > /p/file; cat /p/file"); got != "changed\n" {
		t.Errorf("cow: %q", got)
	}
	if text, _ := os.ReadFile(dir + "/file"); string(text) != "content" {
		t.Errorf("cow changed the directory: %q", text)
	}
	b.cli("stop", id)
	if got := b.cli("diff", names(b.home + "/.demesne/changes")[0]); !strings.Contains(got, dir+"/file") {
		t.Errorf("diff: %q", got)
	}
	b.cli("apply", id)
	if text, _ := os.ReadFile(dir + "/file"); string(text) != "changed\n" {
		t.Errorf("apply: %q", text)
	}

	// A namespace: what is listed, and no way out of it.
	_, id = create(alice, client.HostMount{Source: dir + "/shared", Target: "/s", Mode: "rw"}, client.HostMount{Source: dir, Target: "/p"})
	if got := exec(alice, id, "ln -s "+b.dir+" /s/link; ln -s "+b.dir+"/outside /s/leak; cat /p/file; cat /s/leak; echo x > /p/no || echo refused"); !strings.HasPrefix(got, "changed") || !strings.Contains(got, "refused") || strings.Contains(got, "private") {
		t.Errorf("a namespace: %q", got)
	}
	for _, m := range []client.HostMount{
		{Source: dir + "/shared/link"}, {Source: dir + "/shared/leak"}, {Source: dir + "/shared/link/outside"}, {Source: dir + "/shared/../../outside"}, {Source: b.dir},
		{Source: dir + "/../outside"}, {Source: dir, Mode: "rw"}, {Source: dir + "/shared", Mode: "cow"}, {Source: "/"}, {Source: "."}, {Source: dir + "/shared", Target: "/proc"},
	} {
		if status, text := create(alice, m); status != 400 || strings.Contains(text, "private") {
			t.Errorf("%+v: %d %s", m, status, text)
		}
	}
	if status, text := send(key, "POST", "/v1/sandboxes", `{"mounts":[{"source":"`+dir+`"}],"network":{"mode":"open"}}`); status != 400 || !strings.Contains(text, "open") {
		t.Errorf("an open network beside a mount: %d %s", status, text)
	}
	for id, token := range made {
		if status, text := send(token, "DELETE", "/v1/sandboxes/"+id, ""); status != 204 {
			t.Errorf("remove %s: %d %s", id, status, text)
		}
	}
	if left := names(b.home + "/.demesne/changes"); len(left) > 0 {
		t.Errorf("changes that were applied stay: %q", left)
	}
}

// TestServeMountsAway checks that the operator's token alone gives no directory: over TCP it may be another user's.
func TestServeMountsAway(t *testing.T) {
	b := newBox(t)
	api := b.serveAPI("--egress", "none")
	if _, err := api.client(t, api.key).Sandboxes().Create(brief(t), client.CreateRequest{Mounts: []client.HostMount{{Source: b.home}}}); !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), "--allowed-mounts") {
		t.Errorf("%v", err)
	}
}

// TestServeMountsOfNamespaces checks the lists of directories in serve.toml: a namespace's own is the only one that it has, and
// another namespace has that of all.
func TestServeMountsOfNamespaces(t *testing.T) {
	b := newBox(t)
	var dirs [2]string
	for i, name := range []string{"shared", "alices"} {
		dir, err := filepath.EvalSymlinks(b.mkdir(name))
		if err != nil {
			t.Fatal(err)
		}
		b.file(name+"/file", name, 0o644)
		dirs[i] = dir
	}
	config := b.file("serve.toml", `allowed-mounts = ["`+dirs[0]+`"]
[namespaces.alice]
allowed-mounts = ["`+dirs[1]+`:rw"]
`, 0o600)
	s, alice, bob := b.tenants("--config", config)
	for _, row := range []struct {
		who       tenant
		dir, mode string
		status    int
	}{
		{alice, dirs[1], "rw", 201}, {alice, dirs[1], "cow", 400}, {alice, dirs[0], "ro", 400},
		{bob, dirs[0], "ro", 201}, {bob, dirs[0], "rw", 400}, {bob, dirs[1], "ro", 400},
		{tenant{t, s.url, s.key}, dirs[0], "cow", 201}, {tenant{t, s.url, s.key}, dirs[1], "ro", 400},
	} {
		status, text := row.who.send("POST", "/v1/sandboxes", `{"mounts": [{"source": "`+row.dir+`", "mode": "`+row.mode+`"}]}`)
		if status != row.status || status == 400 && !strings.Contains(text, "operator does not allow") && row.mode != "cow" {
			t.Errorf("%s %s: %d %s", row.dir, row.mode, status, text)
		}
		var made struct{ ID string }
		if json.Unmarshal([]byte(text), &made); made.ID != "" {
			row.who.get("DELETE", "/v1/sandboxes/"+made.ID, "")
		}
	}
}
