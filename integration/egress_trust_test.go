package integration

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestEgressTrust checks that an image trusts the machine's own certificate authorities beside the public ones.
// An image without certificates gets the machine's.
func TestEgressTrust(t *testing.T) {
	onInternet(t, func(n *internet) {
		const anchors = "/usr/local/share/ca-certificates"
		need(n, exists(anchors), anchors)
		n.file("image/etc/passwd", "root:x:0:0::/root:/bin/sh\n", 0o644)
		n.file("image/etc/ssl/certs/ca-certificates.crt", "-----BEGIN CERTIFICATE-----\npublic\n", 0o644)
		shell, err := os.ReadFile(program(n, "busybox"))
		if err != nil {
			n.Fatal(err)
		}
		n.file("image/bin/sh", string(shell), 0o755)
		n.file("anchors/README", "none yet", 0o644)
		if err := unix.Mount(n.dir+"/anchors", anchors, "", unix.MS_BIND, ""); err != nil {
			n.Fatal(err)
		}
		n.Cleanup(func() { unix.Unmount(anchors, unix.MNT_DETACH) })
		for _, args := range [][]string{{"--allow-domain", "good.test"}, nil} {
			r := n.demesne(append(append([]string{"run", "--image", "dir:" + n.dir + "/image"}, args...), "--", "sh", "-c", `echo "$SSL_CERT_FILE"; test -e /etc/demesne-ca.pem && echo there`)...)
			if r.code > 1 || strings.Contains(r.stdout, "there") || strings.Contains(r.stdout, "pem") {
				n.Errorf("%v, nothing to add: %+v", args, r)
			}
		}
		n.file("anchors/corp.crt", readFile(n, n.ca), 0o644)
		r := n.demesne("run", "--image", "dir:"+n.dir+"/image", "--allow-domain", "good.test", "--", "sh", "-c", `while read line; do echo "$line"; done < "$SSL_CERT_FILE"`)
		if want := "-----BEGIN CERTIFICATE-----\npublic\n\n" + readFile(n, n.ca); strings.TrimSpace(r.stdout) != strings.TrimSpace(want) {
			n.Errorf("trusts %q, want %q: %+v", r.stdout, want, r)
		}
	})
}

// TestEgressTrustCaller checks that programs in a sandbox trust the authority that a variable of the caller names, on the
// host's files and with a secret, and that nothing else of its file gets inside.
func TestEgressTrustCaller(t *testing.T) {
	onInternet(t, func(n *internet) {
		node := program(n, "node")
		file := n.file("corp.pem", "password="+canary+"\n"+readFile(n, n.ca), 0o600)
		const ask = `require("https").get("https://good.test/a", r => r.on("data", d => process.stdout.write(d))).on("error", e => console.log(e.code))`
		run := func(code string, args ...string) result {
			return n.demesne(append(append([]string{"run", "--allow-domain", "good.test"}, args...), "--", "sh", "-c", `"$0" -e "$1"; grep -c `+canary+` "$NODE_EXTRA_CA_CERTS"`, node, code)...)
		}
		if r := run(ask); !strings.Contains(r.stdout, "CERT") && !strings.Contains(r.stdout, "ISSUER") && !strings.Contains(r.stdout, "SIGNATURE") {
			n.Fatalf("without the variable: %+v", r)
		}
		for _, name := range []string{"NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "npm_config_cafile"} {
			n.extra = []string{name + "=" + file}
			if r := run(ask); r.stdout != "hello from good.test\n0\n" {
				n.Errorf("%s: %+v", name, r)
			}
		}
		if r := n.demesne("run", "--allow-domain", "good.test", "--", "curl", "-sS", "https://good.test/b"); r.stdout != "hello from good.test\n" {
			n.Errorf("curl: %+v", r)
		}
	})
}
