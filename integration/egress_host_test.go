package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// TestEgressHostPort checks that --host-port lets a sandbox reach one port of the machine's loopback, at the same address, and
// nothing else there; that each connection is a decision in the log; and that no other sandbox has it.
func TestEgressHostPort(t *testing.T) {
	onLevels(t, func(n *internet) {
		program(n, "curl")
		serve := func(name string) string {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				n.Fatal(err)
			}
			s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, name+"\n") })}
			n.Cleanup(func() { s.Close() })
			go s.Serve(l)
			return l.Addr().String()
		}
		ide, other := serve("the editor"), serve("another program")
		ask := fmt.Sprintf(`for at in %s %s; do curl -sS -m 60 http://$at/ 2>/dev/null || echo no; curl -sS -m 60 --noproxy '*' http://$at/ 2>/dev/null || echo no; done`, ide, other)
		// By the proxy, a rule alone names the address: http://ADDRESS in it is the host's.
		r := n.demesne("run", "--json", "--host-port", ide, "-c", ask)
		var result struct {
			Stdout string
			Log    string `json:"egress_log"`
		}
		if err := json.Unmarshal([]byte(r.stdout), &result); err != nil || strings.Count(result.Stdout, "the editor\n") != 2 || strings.Contains(result.Stdout, "another") {
			n.Errorf("%+v", r)
		}
		log, err := os.ReadFile(result.Log)
		host, port, _ := strings.Cut(ide, ":")
		if err != nil || !strings.Contains(string(log), `"via":"host","host":"`+host+`","port":`+port) || !strings.Contains(string(log), `"rule":"`+ide+`"`) {
			n.Errorf("log: %v %s", err, log)
		}
		for _, flags := range [][]string{nil, {"--egress", "package-managers"}, {"--egress", "open"}} {
			if r := n.demesne(append(append([]string{"run"}, flags...), "-c", ask)...); strings.Contains(r.stdout, "editor") {
				n.Errorf("%q: %+v", flags, r)
			}
		}
		// A rule that denies the address wins.
		if r := n.demesne("run", "--host-port", ide, "--deny-domain", ide, "-c", ask); strings.Contains(r.stdout, "editor") || !strings.Contains(r.stderr, "blocked: ") {
			n.Errorf("denied: %+v", r)
		}
		for want, args := range map[string][]string{
			"not 127.0.0.1:PORT":       {"--host-port", "127.0.0.2:80"},
			"not from a sandbox in a":  {"--host-port", ide, "--group", "g", "--name", "n"},
			"not a port, or in use th": {"--host-port", ide, "--host-port", ide},
		} {
			if len(n.under) > 0 && strings.HasPrefix(want, "not from") {
				continue // there are no groups
			}
			if r := n.demesne(append(append([]string{"run"}, args...), "--", "true")...); r.code != 125 || !strings.Contains(r.stderr, want) {
				n.Errorf("%s: %+v", want, r)
			}
		}
		if len(n.under) > 0 {
			return
		}
		// A persistent sandbox has it after a restart, and only that one.
		kept := n.create("--host-port", ide)
		n.must("stop", kept)
		if got := n.must("exec", kept, "-c", ask); strings.Count(got, "the editor\n") != 2 || strings.Contains(got, "another") {
			n.Errorf("after a restart: %q", got)
		}
		if r := n.demesne("run", "--allow-domain", "good.test", "-c", ask); strings.Contains(r.stdout, "editor") {
			n.Errorf("another sandbox beside it: %+v", r)
		}
	})
}

// TestAgentHostPort checks that an agent at the user's terminal reaches the port of an IDE, beside its model's route, and only then.
func TestAgentHostPort(t *testing.T) {
	b, _, project := newScriptBox(t)
	ide := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "the editor\n") }))
	t.Cleanup(ide.Close)
	at := ide.Listener.Addr().String()
	ask := "curl -sS -m 60 --noproxy '*' http://" + at + "/ || true"
	if r := b.works(project, "--host-port", at, ask); !strings.Contains(r.stdout, "the editor") {
		t.Errorf("%+v", r)
	}
	if r := b.works(project, ask); strings.Contains(r.stdout, "the editor") {
		t.Errorf("without the flag: %+v", r)
	}
}
