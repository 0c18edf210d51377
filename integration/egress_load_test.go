package integration

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// busyClient makes allowed requests directly and through the proxy until the test stops it, and keeps one tunnel
// open. It prints the requests that failed.
const busyClient = `
import os, socket, threading, urllib.request
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
proxied = urllib.request.build_opener()
failed, asked = [], [0] * 6
def ask(i, opener):
    while not os.path.exists("/workspace/stop"):
        asked[i] += 1
        try: opener.open("http://good.test/busy", timeout=20).read()
        except OSError as e: failed.append(repr(e))
threads = [threading.Thread(target=ask, args=(i, (direct, proxied)[i % 2])) for i in range(6)]
for t in threads: t.start()
tunnel = socket.create_connection(("db.test", 5432)); tunnel.recv(100)
print("up", flush=True)
while not os.path.exists("/workspace/stop"):
    tunnel.sendall(b"x"); assert tunnel.recv(1) == b"x"
for t in threads: t.join()
print(failed[:3], all(asked))
`

// TestEgressChangedUnderLoad changes rules while connections come and go. Access that is allowed throughout never
// fails, and each change applies to the next connection.
func TestEgressChangedUnderLoad(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "python3")
		var hosts strings.Builder
		for i := range 5 {
			fmt.Fprintf(&hosts, "8.1.1.1 h%d.test\n", i)
		}
		n.peers(hosts.String())
		id := n.create("--allow-domain", "good.test", "--allow-domain", "db.test:5432")
		load := n.command("demesne", "exec", id, "--", "python3", "-c", busyClient)
		var out, errs bytes.Buffer
		load.Stdout, load.Stderr = &out, &errs
		if err := load.Start(); err != nil {
			n.Fatal(err)
		}
		eventually(n, "the load", func() bool { return n.heard("good.test/busy") && n.heard("tcp") })
		for i := range 5 {
			name := fmt.Sprintf("h%d.test", i)
			ask := func() string { return n.demesne("exec", id, "--", "curl", "-sS", "http://"+name+"/").stdout }
			for _, step := range []struct{ verb, want string }{{"allow", "hello from " + name}, {"deny", "denied by rule"}} {
				if r := n.demesne("egress", step.verb, id, name); r.code != 0 {
					n.Errorf("%s %s: %+v", step.verb, name, r)
				}
				if got := ask(); !strings.Contains(got, step.want) {
					n.Errorf("after %s %s: %q", step.verb, name, got)
				}
			}
		}
		if r := n.demesne("exec", id, "--", "touch", "/workspace/stop"); r.code != 0 {
			n.Errorf("stop: %+v", r)
		}
		if err := load.Wait(); err != nil || out.String() != "up\n[] True\n" {
			n.Errorf("under load: %v: %q %s", err, out.String(), errs.String())
		}
	})
}
