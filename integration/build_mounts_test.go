package integration

import (
	"net"
	"os"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// TestBuildMountKinds checks tmpfs, writable binds, and caches with owners, sources and sharing.
func TestBuildMountKinds(t *testing.T) {
	needIDs(t)
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
	// Steps that share wait for each other's file, and the others for two seconds.
	const step = "RUN --mount=type=cache,id=%,target=/c,sharing=% touch /c/$NAME; i=0; until [ $(ls /c | wc -l) = 2 ] || [ $i = LOOKS ]; do sleep 0.1; i=$((i+1)); done; " +
		"ls /c | wc -l > /seen-$NAME; test % = shared || rm /c/$NAME\n"
	for sharing, want := range map[string]string{"shared": "2\n2\n", "private": "1\n1\n", "locked": "1\n1\n"} {
		line := strings.NewReplacer("%", sharing, "LOOKS", map[bool]string{true: "3000", false: "20"}[sharing == "shared"]).Replace(step)
		s.build("FROM local/bb AS a\nENV NAME=a\n"+line+"FROM local/bb AS b\nENV NAME=b\n"+line+
			"FROM local/bb\nCOPY --from=a /seen-a /\nCOPY --from=b /seen-b /\n", "-t", "local/app")
		s.see(t, "cat /seen-a /seen-b", want)
	}
}

// TestBuildCacheOwners checks that gc removes caches whose files and directories are other users'.
func TestBuildCacheOwners(t *testing.T) {
	withIDs(t, func(t *testing.T, g *gallery, one bool) {
		s := newSite(t, g)
		s.build("FROM local/bb\nRUN --mount=type=cache,target=/c mkdir -p /c/d/e && touch /c/d/e/x && chown -R 1000:1000 /c/d && chmod 700 /c/d /c/d/e\n")
		s.ok("gc", "--all", "--build")
		if left := names(s.store + "/caches"); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
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
		"token\": no private key":                       {"--ssh", "default=" + src},
		`open "/nosuch": no such file`:                  {"--ssh", "default=/nosuch"},
		"neither a socket nor a file with a key":        {"--ssh", "default=/dev/null"},
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

// TestBuildSSHKeys checks that a command reaches an agent with the keys of files, and not the files.
func TestBuildSSHKeys(t *testing.T) {
	s := newSite(t, newGallery(t))
	at := s.mkdir("keys") + "/"
	for name, args := range map[string][]string{"ed25519": {"-t", "ed25519", "-N", ""}, "rsa": {"-t", "rsa", "-N", ""}, "locked": {"-N", "secret"}} {
		if r := s.finish(s.command(program(t, "ssh-keygen"), append(args, "-q", "-C", "", "-f", at+name)...)); r.code != 0 {
			t.Fatalf("ssh-keygen: %+v", r)
		}
	}
	raw, err := os.ReadFile(tools + "/sshkeys")
	if err != nil {
		t.Fatal(err)
	}
	s.put("sshkeys", string(raw))
	keys := at + "ed25519," + at + "rsa"
	out := s.build("FROM local/bb\nCOPY --chmod=755 sshkeys /bin/\nRUN --mount=type=ssh sshkeys > /keys && ls /.demesne/in\nUSER 1000\nRUN --mount=type=ssh,uid=1000 sshkeys\n",
		"-t", "local/app", "--progress", "plain", "--ssh", "default="+keys)
	if strings.Count(out, "2 keys") != 1 || !strings.Contains(out, "ssh-default") {
		t.Errorf("progress: %s", out)
	}
	s.see(t, "cat /keys", "2 keys: ed25519 rsa\n")
	if r := s.do("build", "--ssh", "default="+at+"locked", s.ctx); r.code != 2 || !strings.Contains(r.stderr, "the key has a passphrase") || !strings.Contains(r.stderr, "ssh-add KEY") {
		t.Errorf("a passphrase: %+v", r)
	}
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

// TestBuildAttributes checks that layers keep the extended attributes that a RUN may set, as do copies from stages and archives,
// and that a RUN may set no file capabilities: a step that needs them fails.
func TestBuildAttributes(t *testing.T) {
	withIDs(t, func(t *testing.T, g *gallery, one bool) {
		s := newSite(t, g)
		raw, err := os.ReadFile(tools + "/xattr")
		if err != nil {
			t.Fatal(err)
		}
		s.put("xattr", string(raw))
		s.build("FROM local/bb\nCOPY --chmod=755 xattr /bin/\nRUN mkdir /d && touch /d/f && xattr set user.a one /d/f && xattr set user.b two /d\n"+
			"RUN xattr get user.a /d/f && xattr set user.a three /d/f\n", "-t", "local/app")
		s.see(t, "xattr get user.a /d/f; xattr get user.b /d", "three\ntwo\n")
		file := fixture.File("f", "x")
		file.PAXRecords = map[string]string{"SCHILY.xattr.user.c": "four", "SCHILY.xattr.user.overlay.opaque": "y", "SCHILY.xattr.trusted.x": "y", "SCHILY.xattr.user.rootlesscontainers": "\b\x01"}
		packed, err := fixture.Tar(fixture.Dir("."), file)
		if err != nil {
			t.Fatal(err)
		}
		s.put("a.tar", string(packed))
		s.build("FROM local/app AS from\nFROM local/app\nCOPY --from=from /d /e\nADD a.tar /g\n", "-t", "local/app")
		s.see(t, "xattr get user.a /e/f; xattr get user.b /e; xattr get user.c /g/f; xattr get user.overlay.opaque /g/f; stat -c %u /g/f", "three\nxattr: No data available\nfour\nxattr: No data available\n0\n")
		r := s.do("build", "--egress", "none", "--progress", "plain", "-f", s.file("caps", "FROM local/app\nRUN xattr cap /bin/xattr\n", 0o644), s.ctx)
		if r.code != 1 || !strings.Contains(r.stderr, "xattr: Operation not permitted") || !strings.Contains(r.stderr, "caps:2:") {
			t.Errorf("a capability: %+v", r)
		}
	})
}
