package integration

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// TestEgressGoProxy checks that a sandbox's own Go module proxy gives read access to public modules and
// checksums, and no other access to their servers. Without the flag there is no such proxy.
func TestEgressGoProxy(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "curl")
		modules, sums := n.goServers()
		cert := n.trusted("8.3.3.3 " + modules + " " + sums + "\n8.4.4.4 elsewhere.test\n")
		mux := http.NewServeMux()
		for path, text := range map[string]string{
			modules + "/go.test/left/@v/v1.0.0.info": `{"Version":"v1.0.0"}`,
			modules + "/go.test/left/@v/v1.0.0.mod":  "module go.test/left\n",
			modules + "/go.test/left/@v/v1.0.0.zip":  string(zipped(map[string]string{"go.test/left@v1.0.0/go.mod": "module go.test/left\n"})),
			sums + "/latest":                         "go.sum database tree\n",
		} {
			mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { n.saw(r.Host + r.URL.Path); io.WriteString(w, text) })
		}
		mux.HandleFunc(modules+"/moved", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://elsewhere.test/", http.StatusFound)
		})
		mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
			n.saw("other " + r.Method + r.Host + r.URL.Path)
			http.NotFound(w, r)
		})
		server := &http.Server{Handler: mux}
		n.Cleanup(func() { server.Close() })
		for _, at := range []string{"8.3.3.3:443", "8.4.4.4:443"} {
			go server.Serve(tls.NewListener(n.listen(at), &tls.Config{Certificates: []tls.Certificate{cert}}))
		}
		script := `at=http://127.0.0.1:8087; echo $GOPROXY; curl -sS $at/go.test/left/@v/v1.0.0.info; echo
curl -sS -o /dev/null -w '%{http_code}\n' $at/sumdb/` + sums + `/supported; curl -sS $at/sumdb/` + sums + `/latest
curl -sSL -m 20 $at/moved 2>&1 | grep -c 403
curl -sS -X POST -d secret $at/go.test/left/@v/list; curl -sS $at//evil.test/x > /dev/null
curl -sS -H 'Host: elsewhere.test' $at/go.test/left/@v/v1.0.0.mod
for way in '' '--noproxy *'; do curl -sS -m 20 $way https://` + modules + `/go.test/left/@v/v1.0.0.info; echo; done`
		want := "http://127.0.0.1:8087,direct\n{\"Version\":\"v1.0.0\"}\n200\ngo.sum database tree\n1\n" +
			"blocked by demesne: \"" + modules + "\": the Go proxy accepts GET and HEAD, not \"POST\"\nmodule go.test/left\n\n\n"
		if r := n.inside(script, "--go-proxy"); r.stdout != want || n.heard("other POST") || n.heard("elsewhere.test") {
			n.Errorf("%+v\nwant %q; seen %q", r, want, n.seen)
		}
		if path, err := exec.LookPath("go"); err == nil {
			for _, flags := range [][]string{{"--go-proxy"}, {"--egress", "package-managers"}} {
				r := n.inside("cd /tmp && GONOSUMDB=* GOFLAGS=-modcacherw "+path+" mod download go.test/left@v1.0.0 && ls ~/go/pkg/mod/go.test", append(flags, "--memory", "1g")...)
				if r.stdout != "left@v1.0.0\n" {
					n.Errorf("%q: %+v", flags, r)
				}
			}
		}
		for _, flags := range [][]string{nil, {"--allow-domain", "elsewhere.test"}} {
			if r := n.inside(`echo "$GOPROXY"; curl -sS http://127.0.0.1:8087/ || echo nobody`, flags...); !strings.HasSuffix(r.stdout, "\nnobody\n") || strings.Contains(r.stdout, "8087") {
				n.Errorf("%q: %+v", flags, r)
			}
		}
	})
}

// goServers returns the host names of the public module proxy and its checksum database.
func (n *internet) goServers() (modules, checksums string) {
	n.Helper()
	hosts := n.packageServers("Go modules and checksums")
	if len(hosts) != 2 {
		n.Fatalf("want a module proxy and a checksum database: %q", hosts)
	}
	return hosts[0], hosts[1]
}

// packageServers asks demesne for the host names of a package manager's servers.
func (b *box) packageServers(of string) (hosts []string) {
	b.Helper()
	r := b.demesne("egress", "list", "--json", "package-managers")
	var mode struct{ Rules []struct{ For, Rule string } }
	if err := json.Unmarshal([]byte(r.stdout), &mode); err != nil {
		b.Fatalf("%v: %+v", err, r)
	}
	for _, rule := range mode.Rules {
		if host, ports, _ := strings.Cut(rule.Rule, ":"); rule.For == of && ports == "443" {
			hosts = append(hosts, host)
		}
	}
	if len(hosts) == 0 {
		b.Fatalf("no server of %s: %s", of, r.stdout)
	}
	return hosts
}
