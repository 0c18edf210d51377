package integration

import (
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestQuotaExact checks the bounds of persistent sandboxes while two servers, a namespace, the command line and a caller
// with a runner of its own create at once. Exactly as many are made as fit, none of the others is made even for a
// moment, and each refusal says how to make room.
func TestQuotaExact(t *testing.T) {
	const most, ofAlice, each = 5, 2, 8
	b := newBox(t)
	b.extra = append(b.extra, "DEMESNE_MAX_SANDBOXES=5")
	config := b.file("serve.toml", "[namespaces.alice]\nmax-sandboxes = 2\n", 0o600)
	one, alice, _ := b.tenants("--config", config)
	state := b.mkdir("second")
	b.extra = append(b.extra, "DEMESNE_STATE="+state)
	two := b.serveAPI()
	two.key = strings.TrimSpace(string(must(os.ReadFile(state + "/server/token"))))
	var made, ofHers atomic.Int64
	remote := func(c tenant, n *atomic.Int64) func() {
		return func() {
			switch status, text := c.send("POST", "/v1/sandboxes", "{}"); {
			case status == http.StatusCreated:
				n.Add(1)
			case status != http.StatusTooManyRequests || !strings.Contains(text, "create sandbox: too many sandboxes (") || !strings.Contains(text, "the maximum"):
				t.Errorf("%d %s", status, text)
			}
		}
	}
	local := func(name string, args ...string) func() {
		return func() {
			r := b.finish(b.command(name, append(args, "create")...))
			if r.code == 0 {
				made.Add(1)
			} else if r.code != 125 || !strings.Contains(r.stderr, "too many sandboxes (5)\nhint: ") {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
	var all sync.WaitGroup
	for _, door := range []func(){
		remote(alice, &ofHers), remote(tenant{t, one.url, one.key}, &made), remote(tenant{t, two.url, two.key}, &made),
		local("demesne"), local(program(t, "setpriv"), "--no-new-privs", bin+"/demesne"),
	} {
		for range each {
			all.Go(door)
		}
	}
	all.Wait()
	if made.Load()+ofHers.Load() != most || ofHers.Load() > ofAlice {
		t.Errorf("made %d, and %d of the namespace", made.Load(), ofHers.Load())
	}
	listed := strings.Fields(b.cli("ls", "-q"))
	if len(listed) != most {
		t.Errorf("there are %q", listed)
	}
	_, log := tenant{t, one.url, one.key}.send("GET", "/v1/audit?limit=1000", "")
	_, more := tenant{t, two.url, two.key}.send("GET", "/v1/audit?limit=1000", "")
	if n := strings.Count(log+more, "session.created"); n > most {
		t.Errorf("the servers made %d sandboxes", n)
	}
	b.cli(append([]string{"rm"}, listed...)...)
}
