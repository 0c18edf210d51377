package integration

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"demesne/integration/fixture"
)

// TestBuildOutput checks the kinds of --output.
func TestBuildOutput(t *testing.T) {
	s := newSite(t, newGallery(t))
	s.put("Containerfile", "FROM local/bb AS b\nRUN mkdir /d && echo x > /d/x && ln /d/x /d/twin && ln -s x /d/link && ln -s /etc/passwd /d/out\nFROM scratch\nCOPY --from=b /d /d\n")
	for _, kind := range []string{"oci", "docker"} {
		file := s.dir + "/" + kind + ".tar"
		s.ok("build", "-q", "--egress", "none", "-o", "type="+kind+",dest="+file, s.ctx)
		if r := s.finish(s.command(program(t, "skopeo"), "inspect", kind+"-archive:"+file)); r.code != 0 {
			t.Errorf("%s: %+v", kind, r)
		}
	}
	s.ok("build", "-q", "--egress", "none", "-o", s.dir+"/files", s.ctx)
	for name, want := range map[string]string{"d/x": "x\n", "d/twin": "x\n", "d/link": "x\n"} {
		if got, err := os.ReadFile(s.dir + "/files/" + name); string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if to, err := os.Readlink(s.dir + "/files/d/out"); to != "/etc/passwd" {
		t.Errorf("link: %q, %v", to, err)
	}
	r := s.do("build", "-q", "--egress", "none", "-o", "-", s.ctx)
	if r.code != 0 || !strings.Contains(r.stdout, "d/twin") || strings.Contains(r.stdout, "sha256:") {
		t.Errorf("stdout: exit %d, %d bytes, %s", r.code, len(r.stdout), r.stderr)
	}
	for flags, want := range map[string]string{
		"-o type=registry,dest=x": "demesne push NAME", "-o type=zip,dest=x": `unknown type "zip"`, "-o type=oci": "no dest", "-o type=local,dest=-": "not a directory",
		"--squash": "FROM scratch", "--network host": "--egress none", "--cache-from x": "the results of steps are kept", "--add-host a:b": "/etc/hosts",
		"--no-cache-filter a": "--no-cache executes all", "--isolation chroot": "always in a sandbox", "--load": "in demesne's store", "--push": "demesne push",
	} {
		if r := s.do(append(append([]string{"build"}, strings.Fields(flags)...), s.ctx)...); r.code != 2 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: want %q: %+v", flags, want, r)
		}
	}
}

// TestBuildUnknownBase checks that a mistyped base ends a build soon, with the name that was meant, also if no registry
// ever answers.
func TestBuildUnknownBase(t *testing.T) {
	s := newSite(t, newGallery(t))
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it accepts connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	name := silent.Addr().String() + "/local/app"
	s.ok("import", s.dir+"/root.tar", name)
	s.put("Containerfile", "# a comment\nFROM "+name+"x\nRUN true\n")
	began := time.Now()
	r := s.do("build", "--egress", "none", s.ctx)
	if took := time.Since(began); r.code != 125 || !strings.Contains(r.stderr, "Containerfile:2:") || !strings.Contains(r.stderr, `did you mean "`+name+`"?`) || took > 25*time.Second {
		t.Errorf("after %s: %+v", took, r)
	}
	s.refused(t, "FROM registry.nosuch.test/alpine\nRUN true\n", []string{"Containerfile:1:", "registry.nosuch.test"})
	s.refused(t, "FROM debain\n", []string{"Containerfile:1:", `did you mean "debian"?`})
}

// TestBuildReproducibleUsers checks that every user gets the same digest: root and an ordinary user, with subordinate ids
// and without. Each runs this test, so the digest of a build without RUN is written here; one with RUN depends on this
// machine's busybox, and is compared between the two kinds of ids.
func TestBuildReproducibleUsers(t *testing.T) {
	const want = "sha256:d6f7d97a301dfacaef07726a0e970876ba10da0ec786173e335282329096264b"
	digests := map[string]bool{}
	withIDs(t, func(t *testing.T, g *gallery, one bool) {
		s := newSite(t, g)
		// Without subordinate ids a RUN can give files to no other user, but ADD and COPY can.
		base := slices.DeleteFunc(g.busybox(), func(e fixture.Entry) bool { return e.Uid != 0 })
		raw, err := fixture.Tar(append(base, fixture.Dir("made"), fixture.Mode("made/x", "x\n", 0o750))...)
		if err != nil {
			t.Fatal(err)
		}
		small, err := fixture.Tar(fixture.Dir("d"), fixture.Mode("d/x", "x\n", 0o750), fixture.Link("d/l", "x"), fixture.Hard("d/h", "d/x"),
			fixture.Owned(fixture.Dir("theirs"), 33), fixture.Owned(fixture.Mode("theirs/x", "x\n", 0o640), 1000))
		if err != nil {
			t.Fatal(err)
		}
		s.file("ctx/root.tar", string(raw), 0o644)
		s.file("ctx/small.tar", string(small), 0o644)
		s.put("a", "a\n")
		flags := []string{"build", "-q", "--egress", "none", "--timestamp", "1000000000", "--platform", "linux/amd64", s.ctx}
		s.put("Containerfile", "FROM scratch AS first\nADD small.tar /\nCOPY --chown=1000:1001 a /given/\n"+
			"FROM scratch\nADD small.tar /\nCOPY --chmod=640 a /copied/\nCOPY --from=first /given /theirs/x /from/\nCOPY --chown=7:8 --from=first /theirs /again/\nUSER 1000:33\nWORKDIR /w\nENV A=b\nLABEL c=d\n")
		if got := strings.TrimSpace(s.ok(flags...)); got != want {
			t.Errorf("without RUN: %s, want %s", got, want)
		}
		s.put("Containerfile", "FROM scratch\nADD root.tar /\nENV PATH=/bin\nCOPY a /a\nRUN mkdir /y && cp /a /y/b && rm -r /made && chmod 4755 /a && ln /y/b /twin\nRUN echo 1 > /y/c\n")
		digests[s.ok(flags...)] = true
		s.put("Containerfile", "FROM scratch\nADD root.tar /\nENV PATH=/bin\nCOPY --chown=1000:1001 a /a\nADD small.tar /\nRUN chmod 600 /a && echo 2 > /theirs/y && ln /theirs/x /theirs/z\n")
		digests["chown "+s.ok(flags...)] = true
		if got := s.finish(s.command("/bin/sh", "-c", bin+"/demesne build -q --egress none --timestamp 1000000000 --platform linux/amd64 -o - "+s.ctx+" | tar tv --numeric-owner | awk '{print $1, $2, $6}' | grep -E ' (a|theirs.*)$' | sort -k 3")); got.stdout !=
			"-rw------- 1000/1001 a\ndrwxr-xr-x 33/33 theirs/\n-rw-r----- 1000/1000 theirs/x\n-rw-r--r-- 0/0 theirs/y\nhrw-r----- 1000/1000 theirs/z\n" {
			t.Errorf("owners: %+v", got)
		}
	})
	if len(digests) != 2 {
		t.Errorf("with RUN: digests differ: %v", digests)
	}
}
