package integration

import (
	"net"
	"strings"
	"testing"
)

// TestBuildMountKinds checks tmpfs, writable binds, and caches with owners, sources and sharing.
func TestBuildMountKinds(t *testing.T) {
	s := newSite(t, newGallery(t))
	s.put("d/one", "1\n")
	s.put("file", "f\n")
	s.build(`FROM local/bb AS made
RUN mkdir /seed && echo seed > /seed/a
RUN --mount=type=cache,target=/seed/cache,id=seed touch /seed/cache/x
FROM local/bb
RUN --mount=type=tmpfs,target=/t/deep,size=1m echo 1 > /t/deep/x; dd if=/dev/zero of=/t/deep/big bs=1M count=2 2>/dev/null || echo full > /seen
RUN --mount=type=bind,source=d,target=/b,rw echo 2 > /b/two; echo 3 >> /b/one; cat /b/one /b/two >> /seen
RUN --mount=type=bind,source=d,target=/b cat /b/* >> /seen; touch /b/x 2>/dev/null || echo read-only >> /seen
RUN --mount=type=bind,from=made,source=/seed,target=/b,rw touch /b/x && find /b -type f | sort >> /seen
RUN --mount=type=cache,from=made,source=/seed,target=/c cat /c/a >> /seen; echo changed > /c/a
RUN --mount=type=cache,from=made,source=/seed,target=/c cat /c/a >> /seen
RUN --mount=type=cache,id=two,target=/c1,sharing=locked --mount=type=cache,id=two,target=/c2,sharing=locked echo both > /c1/x; cat /c2/x >> /seen
USER 1000
RUN --mount=type=cache,target=/c,id=users,uid=1000,gid=50 echo mine >> /c/n; stat -c %u:%g /c > /tmp/owner
RUN --mount=type=cache,target=/c,id=users,uid=1000,gid=50 echo mine >> /c/n; cat /c/n > /tmp/mine
`, "-t", "local/app")
	s.see(t, "cat /seen /tmp/owner /tmp/mine; ls -d /t /b /c /c1 2>/dev/null; true",
		"full\n1\n3\n2\n1\nread-only\n/b/a\n/b/x\nseed\nchanged\nboth\n1000:50\nmine\nmine\n")
	s.refused(t, "FROM local/bb\nRUN --mount=type=bind,source=file,target=/f,rw true\n", []string{"Containerfile:2:", "single file", "mount its directory"})
	s.refused(t, "FROM local/bb\nRUN --mount=type=cache,target=/c,source=x true\n", []string{"Containerfile:2:", "source without from"})
}

// TestBuildCacheSharing checks that two steps share a cache, have one each, or wait for each other, as they ask.
func TestBuildCacheSharing(t *testing.T) {
	s := newSite(t, newGallery(t))
	const step = "RUN --mount=type=cache,id=%,target=/c,sharing=% touch /c/$NAME; sleep 2; ls /c | wc -l > /seen-$NAME; sleep 1; rm /c/$NAME\n"
	for sharing, want := range map[string]string{"shared": "2\n2\n", "private": "1\n1\n", "locked": "1\n1\n"} {
		line := strings.ReplaceAll(step, "%", sharing)
		s.build("FROM local/bb AS a\nENV NAME=a\n"+line+"FROM local/bb AS b\nENV NAME=b\n"+line+
			"FROM local/bb\nCOPY --from=a /seen-a /\nCOPY --from=b /seen-b /\n", "-t", "local/app")
		s.see(t, "cat /seen-a /seen-b", want)
	}
}

// TestBuildSecretForms checks the forms of --secret and --ssh that docker build has.
func TestBuildSecretForms(t *testing.T) {
	s := newSite(t, newGallery(t))
	src := s.file("token", "from-file", 0o600)
	s.put("Containerfile", `FROM local/bb
RUN --mount=type=secret,id=a,required=true cat /run/secrets/a > /seen; echo >> /seen
RUN --mount=type=secret,source=b,target=/b,required=true cat /b >> /seen; echo >> /seen
RUN --mount=type=secret,id=c,env=TOKEN echo "$TOKEN" >> /seen
RUN --mount=type=secret,id=d,env=TOKEN echo "$TOKEN" >> /seen
USER 1000
RUN --mount=type=secret,id=a,uid=1000 cat /run/secrets/a > /tmp/user; echo >> /tmp/user
`)
	cmd := s.cli("build", "--egress", "none", "-t", "local/app", "--secret", "id=a,src="+src, "--secret", "id=b,source="+src, "--secret", "id=c,env=FACE_C",
		"--secret", "id=d,type=env,src=FACE_C", s.ctx)
	cmd.Env = append(cmd.Env, "FACE_C=from-env")
	if r := s.finish(cmd); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.see(t, "cat /seen /tmp/user", "from-file\nfrom-file\nfrom-env\nfrom-env\nfrom-file\n")
	for want, flags := range map[string][]string{
		`secret "x": the variable "NO_SUCH" is not set`: {"--secret", "id=x,env=NO_SUCH"},
		`secret "x": read "/nosuch": no such file`:      {"--secret", "id=x,src=/nosuch"},
		`secret "nosuch": read "nosuch"`:                {"--secret", "id=nosuch"},
		`unknown field "file"`:                          {"--secret", "id=x,file=a"},
		`unknown type "vault"`:                          {"--secret", "id=x,type=vault,src=a"},
		"ssh-add KEY":                                   {"--ssh", "default=" + src},
	} {
		if r := s.do(append(append([]string{"build"}, flags...), s.ctx)...); r.code != 2 || !strings.Contains(r.stderr, want) {
			t.Errorf("%q: want %q: %+v", flags, want, r)
		}
	}
	socket := s.dir + "/agent"
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s.build("FROM local/bb\nRUN --mount=type=ssh,required=true test -S $SSH_AUTH_SOCK && test -w $SSH_AUTH_SOCK\nUSER 1000\n"+
		"RUN --mount=type=ssh,uid=1000 test -w $SSH_AUTH_SOCK\nRUN test -z \"$SSH_AUTH_SOCK\"\n", "--ssh", "default="+socket)
	s.refused(t, "FROM local/bb\nRUN --mount=type=ssh,required=true true\n", []string{"Containerfile:2:", `no agent "default" was given`})
}

// TestBuildSockets checks that a socket in a directory is omitted, as by docker build, and refused as a source.
func TestBuildSockets(t *testing.T) {
	s := newSite(t, newGallery(t))
	s.put("d/a", "a\n")
	l, err := net.Listen("unix", s.ctx+"/d/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s.build("FROM local/bb\nCOPY d /d\n", "-t", "local/app")
	s.see(t, "ls /d", "a\n")
	s.refused(t, "FROM local/bb\nCOPY d/socket /\n", []string{"Containerfile:2:", "a socket cannot be copied"})
}
