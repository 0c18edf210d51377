package integration

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// authority is Let's Encrypt's test server, Pebble.
type authority struct {
	*box
	dns, ca              string // address of its resolver; file with the certificate of its listener
	key                  string // file
	port, management, at string // at: the port of the server that it checks
	cmd                  *exec.Cmd
}

func (b *box) authority(at string) *authority {
	b.Helper()
	cert, key := certificate(b, 1)
	a := &authority{
		box: b, dns: loopbackDNS(b), ca: b.file("ca.pem", cert, 0o644), key: b.file("ca-key.pem", key, 0o600),
		port: freePort(b), management: freePort(b), at: at,
	}
	b.Cleanup(a.stop)
	return a
}

// start starts it. Its certificates hold for so many seconds. It refuses a certificate for refused.example.com.
func (a *authority) start(seconds int) {
	a.Helper()
	from := os.Getenv("DEMESNE_PEBBLE")
	if from == "" {
		from = "/var/tmp/demesne-pebble"
	}
	if _, err := os.Stat(from + "/installed"); err != nil {
		need(a, false, "integration/deps.sh (pebble)")
	}
	config, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": "127.0.0.1:" + a.port, "managementListenAddress": "127.0.0.1:" + a.management, "certificate": a.ca, "privateKey": a.key,
		"tlsPort": number(a, a.at), "httpPort": 1, "domainBlocklist": []string{"refused.example.com"},
		"retryAfter": map[string]int{"authz": 1, "order": 1}, "profiles": map[string]any{"default": map[string]any{"description": "", "validityPeriod": seconds}},
	}})
	if err != nil {
		a.Fatal(err)
	}
	a.cmd = exec.Command(from+"/pebble", "-config", a.file("pebble.json", string(config), 0o644), "-dnsserver", a.dns)
	a.cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1")
	if err := a.cmd.Start(); err != nil {
		a.Fatal(err)
	}
	eventually(a, "the authority", func() bool { _, err := a.client().Get("https://localhost:" + a.port + "/dir"); return err == nil })
}

func (a *authority) stop() {
	if a.cmd != nil {
		a.cmd.Process.Kill()
		a.cmd.Wait()
		a.cmd = nil
	}
}

func (a *authority) client() *http.Client {
	text, err := os.ReadFile(a.ca)
	if err != nil {
		a.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
}

// root returns the certificate with which this run's certificates are checked.
func (a *authority) root() *x509.CertPool {
	a.Helper()
	resp, err := a.client().Get("https://localhost:" + a.management + "/roots/0")
	if err != nil {
		a.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		a.Fatalf("no root: %s", text)
	}
	return pool
}

func number(t testing.TB, text string) (n int) {
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// loopbackDNS returns the address of a resolver, by TCP, that has 127.0.0.1 for each name.
func loopbackDNS(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 512)
			n, _ := c.Read(buf) // a message after its length
			c.Write(answerLoopback(buf[2:n]))
			c.Close()
		}
	}()
	return l.Addr().String()
}

// answerLoopback returns the answer to a query, after its length: an address for type A, and nothing for others.
func answerLoopback(query []byte) []byte {
	question := query[12:]
	question = question[:bytes.IndexByte(question, 0)+5] // the name, its type and class
	answer := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
	if question[len(question)-3] == 1 {
		answer[7] = 1
		answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, 1)
	}
	return append([]byte{0, byte(len(answer))}, answer...)
}

// TestServeACME obtains certificates from a real authority, which reaches the server at its port, by tls-alpn-01.
func TestServeACME(t *testing.T) {
	b := newBox(t)
	port := freePort(t)
	a := b.authority(port)
	serve := func() *apiServer {
		t.Helper()
		return b.serveAPI("--http", "127.0.0.1:"+port, "--acme", "a.example.com", "--acme", "refused.example.com", "--egress", "none",
			"--acme-directory", "https://localhost:"+a.port+"/dir", "--acme-ca-file", a.ca)
	}
	// served returns the certificate of a name, and whether it is the authority's.
	served := func(name string, roots *x509.CertPool) (*x509.Certificate, error) {
		c, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", "127.0.0.1:"+port, &tls.Config{ServerName: name, RootCAs: roots})
		if err != nil {
			return nil, err
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0], nil
	}
	says := func(s *apiServer, words ...string) {
		t.Helper()
		defer func() {
			if t.Failed() {
				t.Log(s.said())
			}
		}()
		eventually(t, "the message "+strings.Join(words, " … "), func() bool {
			for line := range strings.SplitSeq(s.said(), "\n") {
				all := true
				for _, w := range words {
					all = all && strings.Contains(line, w)
				}
				if all {
					return true
				}
			}
			return false
		})
	}

	s := serve() // no authority yet
	says(s, `certificate for "a.example.com"`, "connection refused; the next attempt is in 2m0s")
	if _, err := served("a.example.com", nil); err == nil {
		t.Error("a certificate without an authority")
	}
	b.must("ls")
	s.stop(syscall.SIGTERM)

	a.start(24 * 3600)
	s = serve()
	says(s, `certificate for "a.example.com": valid until`)
	says(s, `certificate for "refused.example.com"`, "forbidden domain; the next attempt")
	roots := a.root()
	first, err := served("a.example.com", roots)
	if err != nil {
		t.Fatalf("%v\n%s", err, s.said())
	}
	api := http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "a.example.com"}, DisableKeepAlives: true,
	}}
	req, _ := http.NewRequest("GET", "https://127.0.0.1:"+port+"/v1/queue", nil)
	req.Host, req.Header = "a.example.com", http.Header{"X-Api-Key": {s.key}}
	if resp, err := api.Do(req); err != nil || resp.StatusCode != 200 {
		t.Errorf("a request: %v %v", resp, err)
	}
	for _, name := range []string{"refused.example.com", "b.example.com", "127.0.0.1"} {
		if c, err := served(name, roots); err == nil {
			t.Errorf("a certificate for %s: %v", name, c.DNSNames)
		}
	}
	files, err := filepath.Glob(b.home + "/.demesne/server/acme/*")
	if err != nil || len(files) < 2 {
		t.Errorf("state: %q %v", files, err)
	}
	for _, f := range append(files, b.home+"/.demesne/server/acme") {
		if st, err := os.Stat(f); err != nil || st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v %v", f, st.Mode(), err)
		}
	}
	s.stop(syscall.SIGKILL)
	a.stop()
	s = serve() // the kept certificate is served while the authority is away
	if again, err := served("a.example.com", roots); err != nil || again.SerialNumber.Cmp(first.SerialNumber) != 0 {
		t.Errorf("after a restart: %v", err)
	}
	s.stop(syscall.SIGTERM)

	if err := os.Remove(b.home + "/.demesne/server/acme/a.example.com"); err != nil {
		t.Fatal(err)
	}
	a.start(30) // renewed at the last third, for which an order has time on a busy machine
	s = serve()
	says(s, `certificate for "a.example.com": valid until`)
	roots = a.root()
	if first, err = served("a.example.com", roots); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the renewed certificate", func() bool {
		next, err := served("a.example.com", roots)
		if err != nil {
			t.Fatalf("the old certificate ended before there was a new one: %v", err)
		}
		return next.SerialNumber.Cmp(first.SerialNumber) != 0
	})
}
