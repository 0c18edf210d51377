package integration

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestEgressTrust checks that an image trusts the machine's own certificate authorities beside the public ones.
// An image without certificates gets those of the machine.
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
