package integration

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// TestImageRootInside checks that package managers work as root inside, with and without subordinate ids. Their
// mirrors are files given by --in and served on the sandbox's own loopback.
func TestImageRootInside(t *testing.T) {
	img, err := fixture.Debian()
	if err != nil {
		need(t, false, err.Error())
	}
	withIDs(t, func(t *testing.T, g *gallery, one bool) {
		if err := g.reg.Push("docker/library/debian:latest", img); err != nil {
			t.Fatal(err)
		}
		g.mirror(t)
		g.ok("pull", "debian")
		for _, c := range []struct{ name, script, want string }{
			{"apt", `rm -rf /etc/apt/sources.list*; echo 'deb [trusted=yes] http://127.0.0.1:8000/deb ./' > /etc/apt/sources.list
				apt-get update && apt-get install -y greet; greet; stat -c %a /var/lib/greet/own; dpkg -s greet | grep ^Status`,
				"hello from a package\n2750\nStatus: install ok installed\n"},
			{"apt remove", `dpkg -i /in/mirror/deb/greet.deb && apt-get remove -y greet && test ! -e /usr/bin/greet && echo gone`, "gone\n"},
			{"pip", `pip install --break-system-packages --index-url http://127.0.0.1:8000/simple/ greet && python3 -c 'import greet; print(greet.word)'`, "hello from a wheel\n"},
			{"npm", `npm install -g --offline /in/mirror/greet.tgz && greet-js`, "hello from a tarball\n"},
			{"useradd", `useradd -m -s /bin/bash -G staff bob && groupadd -g 4444 team && id -u bob && test -d /home/bob && touch /home/bob/f && chown bob:team /home/bob/f && echo done`, "1000\ndone\n"},
		} {
			t.Run(c.name, func(t *testing.T) {
				r := g.do("run", "--image", "debian", "--in", g.dir+"/mirror", "-c",
					`(cd /in/mirror && exec python3 -m http.server 8000 --bind 127.0.0.1) >/tmp/http.log 2>&1 &
					until python3 -c 'import socket; socket.create_connection(("127.0.0.1", 8000))' 2>/dev/null; do sleep 0.1; done
					`+strings.Replace(c.script, "apt-get update", "apt-get update >&2", 1))
				if r.code != 0 || !strings.HasSuffix(r.stdout, c.want) {
					t.Errorf("exit %d\nstdout: %s\nstderr: %s", r.code, r.stdout, r.stderr)
				}
			})
		}
	})
}

// mirror writes the packages for the package managers.
func (g *gallery) mirror(t *testing.T) {
	t.Helper()
	deb := debPackage(t)
	g.file("mirror/deb/greet.deb", string(deb), 0o644)
	g.file("mirror/deb/Packages", fmt.Sprintf("%sFilename: ./greet.deb\nSize: %d\nSHA256: %s\n\n", control, len(deb), sha256hex(deb)), 0o644)
	g.file("mirror/simple/greet/greet-1.0-py3-none-any.whl", string(wheel(t)), 0o644)
	g.file("mirror/greet.tgz", gzipped(t, mustTar(t, fixture.File("package/package.json", `{"name":"greet","version":"1.0.0","bin":{"greet-js":"./run.js"}}`),
		fixture.Mode("package/run.js", "#!/usr/bin/env node\nconsole.log('hello from a tarball')\n", 0o755))), 0o644)
}

const control = "Package: greet\nVersion: 1.0\nArchitecture: all\nMaintainer: Nobody <nobody@example.org>\nDescription: says hello\n"

// debPackage returns a package that is difficult under one id. It has files of other users, a setgid directory,
// and a script that changes owners and adds a user.
func debPackage(t *testing.T) []byte {
	t.Helper()
	own := fixture.Owned(fixture.Dir("./var/lib/greet/own"), 8)
	own.Mode = 0o2750
	data := mustTar(t, fixture.Dir("./usr"), fixture.Dir("./usr/bin"), fixture.Mode("./usr/bin/greet", "#!/bin/sh\necho hello from a package\n", 0o755),
		fixture.Dir("./var"), fixture.Dir("./var/lib"), fixture.Dir("./var/lib/greet"), own, fixture.Owned(fixture.Mode("./var/lib/greet/mail", "x", 0o4755), 8))
	const postinst = "#!/bin/sh\nset -e\nuseradd -r -s /usr/sbin/nologin greeter\nchown greeter:mail /var/lib/greet/mail\n"
	scripts := mustTar(t, fixture.File("./control", control), fixture.Mode("./postinst", postinst, 0o755))
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	for _, f := range []struct{ name, body string }{{"debian-binary", "2.0\n"}, {"control.tar.gz", gzipped(t, scripts)}, {"data.tar.gz", gzipped(t, data)}} {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", f.name, 0, 0, 0, "100644", len(f.body), f.body)
		if len(f.body)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

func wheel(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range []struct{ name, body string }{
		{"greet/__init__.py", "word = 'hello from a wheel'\n"},
		{"greet-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n"},
		{"greet-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{"greet-1.0.dist-info/RECORD", "greet/__init__.py,,\ngreet-1.0.dist-info/METADATA,,\ngreet-1.0.dist-info/WHEEL,,\ngreet-1.0.dist-info/RECORD,,\n"},
	} {
		f2, err := w.Create(f.name)
		if err != nil {
			t.Fatal(err)
		}
		f2.Write([]byte(f.body))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func mustTar(t *testing.T, entries ...fixture.Entry) []byte {
	t.Helper()
	raw, err := fixture.Tar(entries...)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func sha256hex(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }
