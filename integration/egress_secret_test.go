package integration

import (
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
)

// A sandbox uses a credential that it does not have: only the host it is for gets it, and
// only over TLS. What the host sends back of it does not come in (N26, N27).
func TestEgressSecret(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "curl")
		cert := n.trusted("8.3.3.3 vault.test\n8.4.4.4 other.test\n")
		tell := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			how := ""
			if r.TLS == nil {
				how = ", in the clear"
			}
			n.saw(r.Host + " got " + r.Header.Get("Authorization") + how)
			w.Header().Set("X-Echo", r.Header.Get("Authorization"))
			io.WriteString(w, "thanks for "+r.Header.Get("Authorization")+"\n")
		})}
		n.Cleanup(func() { tell.Close() })
		secure := &tls.Config{Certificates: []tls.Certificate{cert}}
		go tell.Serve(tls.NewListener(n.listen("8.3.3.3:443"), secure))
		go tell.Serve(tls.NewListener(n.listen("8.4.4.4:443"), secure))
		go tell.Serve(n.listen("8.3.3.3:80"))
		n.extra = append(n.extra, "TOKEN="+canary)

		r := n.inside(`echo "$TOKEN" > /out/placeholder
curl -sSi -H "Authorization: Bearer $TOKEN" https://vault.test/
curl -sS -H "Authorization: Bearer $TOKEN" https://other.test/
curl -sS -H "Authorization: Bearer $TOKEN" http://vault.test/
cat /proc/*/environ 2> /dev/null | tr '\0' '\n' | grep -c `+canary,
			"--out", n.dir+"/secret", "--allow-domain", "vault.test", "--allow-domain", "other.test",
			"--secret", "TOKEN", "--secret-for", "TOKEN=vault.test:Authorization")
		if !n.heard("vault.test got Bearer " + canary) {
			t.Errorf("the host did not get it: %q, %+v", n.seen, r)
		}
		if n.heard("other.test got Bearer "+canary) || n.heard("in the clear") {
			t.Errorf("another one got it, or in the clear: %q", n.seen)
		}
		if placeholder := lines(t, n.dir+"/secret/placeholder")[0]; placeholder == "" || strings.Contains(placeholder+r.stdout+r.stderr, canary) || !strings.HasSuffix(r.stdout, "\n0\n") {
			t.Errorf("inside: %q, %+v", placeholder, r)
		}
		if n := strings.Count(r.stdout, "Bearer "+strings.Repeat("*", len(canary))); n != 2 {
			t.Errorf("what the host sent back is blanked %d times: %s", n, r.stdout)
		}
		// No file keeps it: to a sandbox that is started again it is given again.
		secret := []string{"--secret", "TOKEN", "--secret-for", "TOKEN=vault.test:Authorization"}
		kept := n.create(append(secret, "--allow-domain", "vault.test")...)
		n.must("stop", "--keep", kept)
		n.must(append(append([]string{"exec"}, secret...), kept, "-c", `curl -sS -H "Authorization: Kept $TOKEN" https://vault.test/`)...)
		if !n.heard("vault.test got Kept " + canary) {
			t.Errorf("after it was started again the host did not get it: %q", n.seen)
		}
	})
}
