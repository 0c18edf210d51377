package integration

import (
	"encoding/base64"
	"strings"
	"syscall"
	"testing"

	"demesne/integration/fixture"
)

// spender is an agent's own program: it sends 12 requests of a kind at once, around the agent's program. It prints the
// statuses and texts that it got.
const spender = `
import json, os, socket, sys
host, port = os.environ["FAKE_URL"].split("//")[1].split(":")
kind = sys.argv[1]
body = {"model": "mystery" if kind == "UNPRICED" else "claude-sonnet-5", "max_tokens": 1000, "stream": kind == "CUT",
        "messages": [{"role": "user", "content": kind}], "tools": [{"name": "Bash", "input_schema": {}}]}
text = json.dumps(body)
head = "POST /v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (os.environ["FAKE_TOKEN"], len(text))
all = []
for _ in range(12):
    s = socket.create_connection((host, int(port)))
    s.sendall((head + text).encode())
    s.settimeout(0.2 if kind == "HANGUP" else 60)
    all.append(s)
for s in all:
    got = b""
    try:
        while True:
            b = s.recv(65536)
            if not b:
                break
            got += b
    except OSError:
        pass
    s.close()
    print(got.decode("utf-8", "replace"))
`

// TestEscapeN40Budgets checks that bounds hold against an agent that sends many requests at once. It disconnects before
// the answers, the answers are cut or lack counts, or the model has no price.
func TestEscapeN40Budgets(t *testing.T) {
	answers := map[string]fixture.Answer{"HANGUP": {Delay: 500e6}, "CUT": {Cut: 1}, "SILENT": {Silent: true}, "UNPRICED": {}}
	program := base64.StdEncoding.EncodeToString([]byte(spender))
	for kind, answer := range answers {
		for flag, value := range map[string]string{"--max-turns": "3", "--max-cost": "0.003", "--max-tokens": "700"} {
			t.Run(kind+flag, func(t *testing.T) {
				attack := shell("echo " + program + " | base64 -d > /tmp/s.py; python3 /tmp/s.py " + kind)
				b, m := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
					if strings.Contains(r.Prompt, kind) {
						return answer
					}
					return attack
				})
				r := b.agentTree("Spend.", flag, value)
				if r.code != 137 || !strings.HasPrefix(r.results.Reason, "budget: "+strings.TrimPrefix(flag, "--max-")) {
					t.Errorf("%+v", r)
				}
				n, most := len(m.Log()), map[string]int{"--max-turns": 3, "--max-cost": 8, "--max-tokens": 8}[flag]
				if n > most {
					t.Errorf("%d requests reached the model, more than %d", n, most)
				}
				for _, q := range m.Log() {
					if q.Model == "mystery" && flag == "--max-cost" {
						t.Error("a model without a price was asked")
					}
				}
			})
		}
	}
}

// TestAgentUnpriced checks that an agent whose model has no price is refused where its cost is bounded, with what to
// write, and runs once that is written.
func TestAgentUnpriced(t *testing.T) {
	b, m := newAgentBox(t, func(fixture.ModelRequest) fixture.Answer { return fixture.Answer{Text: "Done."} })
	r := b.demesne("agent", "run", "--model", "fake/mystery", "--max-cost", "1", "Work.")
	if r.code != 125 || !strings.Contains(r.stderr, `{"prices": [{"model": "mystery", `) || len(m.Log()) != 0 {
		t.Errorf("%+v", r)
	}
	if r := b.demesne("agent", "run", "--model", "fake/mystery", "--max-turns", "2", "--max-tokens", "1000", "Work."); r.code != 0 {
		t.Errorf("%+v", r)
	}
	row := strings.Replace(fakeAgent, `{"agents":`, `{"prices":[{"model":"mystery","input":1,"output":2}],"agents":`, 1)
	b.extra = append(b.extra, "DEMESNE_AGENTS_FILE="+b.file("priced.json", row, 0o644))
	if r := b.demesne("agent", "run", "--model", "fake/mystery", "--max-cost", "1", "Work."); r.code != 0 {
		t.Errorf("%+v", r)
	}
}

// hanger is an agent's own program: it sends requests that the model does not answer, one after the other, for ever.
const hanger = `
import json, os, socket, time
host, port = os.environ["FAKE_URL"].split("//")[1].split(":")
text = json.dumps({"model": "claude-sonnet-5", "max_tokens": 1000, "messages": [{"role": "user", "content": "HANG"}], "tools": [{"name": "Bash", "input_schema": {}}]})
head = "POST /v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (os.environ["FAKE_TOKEN"], len(text))
while True:
    try:
        s = socket.create_connection((host, int(port)))
        s.sendall((head + text).encode())
        while s.recv(65536):
            pass
        s.close()
    except OSError:
        time.sleep(0.05)
`

// TestEscapeN40ProxyKilled checks that requests which are open when their proxy is killed count, with an estimate: a budget
// ends the agent also if no request gets an answer.
func TestEscapeN40ProxyKilled(t *testing.T) {
	for flag, c := range map[string]struct {
		value string
		most  int // hanging requests that reach the model
	}{"--max-turns": {"4", 3}, "--max-cost": {"0.02", 2}, "--max-tokens": {"2000", 2}} {
		t.Run(flag, func(t *testing.T) {
			never, hanging := make(chan struct{}), make(chan struct{}, 100)
			attack := shell("echo " + base64.StdEncoding.EncodeToString([]byte(hanger)) + " | base64 -d > /tmp/s.py; python3 /tmp/s.py")
			b, _ := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
				if strings.Contains(r.Prompt, "HANG") {
					hanging <- struct{}{}
					<-never
				}
				return attack
			})
			n, done := 0, make(chan struct{})
			killed := make(chan struct{})
			go func() {
				defer close(killed)
				for {
					select {
					case <-hanging:
						n++
						for _, pid := range named("demesne-proxy") {
							syscall.Kill(pid, syscall.SIGKILL)
						}
					case <-done:
						return
					}
				}
			}()
			r := b.agentTree("Spend.", flag, c.value)
			close(done)
			<-killed
			close(never)
			if r.code != 137 || !strings.HasPrefix(r.results.Reason, "budget: "+strings.TrimPrefix(flag, "--max-")) {
				t.Errorf("%+v", r)
			}
			if n != c.most {
				t.Errorf("%d requests reached the model, not %d", n, c.most)
			}
		})
	}
}
