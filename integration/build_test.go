package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"demesne/integration/fixture"
)

// site is a gallery with a base image and a context for demesne build.
type site struct {
	*gallery
	ctx string
}

// newSite imports busybox as local/bb. Builds have a directory for temporary files of their own: tests that run beside it use /tmp too.
func newSite(t testing.TB, g *gallery) *site {
	t.Helper()
	raw, err := fixture.Tar(g.busybox()...)
	if err != nil {
		t.Fatal(err)
	}
	g.extra = append(g.extra, "TMPDIR="+g.mkdir("tmp"))
	g.ok("import", g.file("root.tar", string(raw), 0o644), "local/bb")
	return &site{g, g.mkdir("ctx")}
}

// put writes a file of the context.
func (s *site) put(name, text string) { s.file("ctx/"+name, text, 0o644) }

// build builds a Containerfile, which must succeed, and returns progress and output.
func (s *site) build(file string, flags ...string) string {
	s.Helper()
	s.put("Containerfile", file)
	r := s.do(append(append([]string{"build", "--egress", "none"}, flags...), s.ctx)...)
	if r.code != 0 || !strings.HasPrefix(r.stdout, "sha256:") {
		s.Fatalf("build: exit %d\nstdout: %s\nstderr: %s\n%s", r.code, r.stdout, r.stderr, file)
	}
	return r.stderr
}

// refused builds a Containerfile, which must fail with these parts in the error.
func (s *site) refused(t *testing.T, file string, parts []string, flags ...string) {
	t.Helper()
	s.put("Containerfile", file)
	r := s.do(append(append([]string{"build", "--egress", "none"}, flags...), s.ctx)...)
	last := lastLines(r.stderr)
	for _, part := range parts {
		if r.code == 0 || r.stdout != "" || !strings.Contains(last, part) {
			t.Errorf("want %q: exit %d\nstdout: %s\nstderr: %s\n%s", part, r.code, r.stdout, r.stderr, short(file))
		}
	}
}

func short(s string) string { return s[:min(len(s), 400)] }

func (s *site) see(t *testing.T, script, want string) {
	t.Helper()
	if got := s.inside("local/app", script); got != want {
		t.Errorf("%s:\n%s\nwant:\n%s", script, got, want)
	}
}

// TestBuildInstructions checks what each instruction does to files and configuration.
func TestBuildInstructions(t *testing.T) {
	withIDs(t, func(t *testing.T, g *gallery, one bool) {
		s := newSite(t, g)
		s.put("a.txt", "a\n")
		s.put("d/x", "x\n")
		s.put("d/sub/y", "y\n")
		s.build(`ARG TAG=bb
FROM local/${TAG} AS base
ARG WHO=default
ENV GREETING="hello $WHO" PATH=/bin
LABEL org.example.who=$WHO
WORKDIR /app
WORKDIR sub
RUN pwd > /where && echo "$GREETING $WHO" > /greeting
COPY a.txt d /app/data/
COPY --chmod=640 a.txt /renamed
ADD a.txt added
COPY <<one <<"two" /here/
$GREETING
one
$GREETING
two
RUN <<EOF
echo first > /script
echo second >> /script
EOF
RUN ["/bin/sh", "-c", "echo exec > /exec"]
SHELL ["/bin/sh", "-ec"]
RUN echo shell > /shell
EXPOSE 80 90-91/udp
VOLUME /data
STOPSIGNAL SIGINT
HEALTHCHECK --interval=5s CMD true
MAINTAINER someone
`, "-t", "local/app", "--build-arg", "WHO=world", "--label", "org.example.extra=1")
		s.see(t, "cat /where /greeting /script /exec /shell /renamed /app/sub/added /here/one /here/two; find /app | sort; stat -c %a /renamed",
			"/app/sub\nhello world world\nfirst\nsecond\nexec\nshell\na\na\nhello world\n$GREETING\n"+
				"/app\n/app/data\n/app/data/a.txt\n/app/data/sub\n/app/data/sub/y\n/app/data/x\n/app/sub\n/app/sub/added\n640\n")
		c := s.config(t)
		if c.StopSignal != "SIGINT" || c.WorkingDir != "/app/sub" || c.Labels["org.example.who"] != "world" || c.Labels["org.example.extra"] != "1" {
			t.Errorf("configuration: %+v", c)
		}
		for _, port := range []string{"80/tcp", "90/udp", "91/udp"} {
			if _, ok := c.ExposedPorts[port]; !ok {
				t.Errorf("EXPOSE: no %s in %v", port, c.ExposedPorts)
			}
		}
		if _, ok := c.Volumes["/data"]; !ok {
			t.Errorf("VOLUME: %v", c.Volumes)
		}
		s.build("FROM local/app\n", "-t", "local/app", "--label", "test=label")
		if c := s.config(t); c.Labels["test"] != "label" || c.Labels["org.example.who"] != "world" {
			t.Errorf("labels of a FROM alone: %v", c.Labels)
		}
		s.build("FROM local/app\nCMD former\nENTRYPOINT [\"/bin/echo\"]\nRUN true\n", "-t", "local/entry")
		if got := s.ok("run", "--image", "local/entry", "--", "mine"); got != "mine\n" {
			t.Errorf("ENTRYPOINT: %q", got)
		}
		s.build("FROM local/entry\nCMD [\"default\"]\n", "-t", "local/entry")
		if got := s.ok("run", "--image", "local/entry"); got != "default\n" {
			t.Errorf("ENTRYPOINT and CMD: %q", got)
		}
	})
}

// savedConfig is the part of an image's configuration that the tests read.
type savedConfig struct {
	StopSignal, WorkingDir, User string
	Labels                       map[string]string
	ExposedPorts, Volumes        map[string]struct{}
	Env, Cmd, OnBuild            []string
}

// config reads the configuration of local/app with skopeo, which also checks that others accept the image.
func (s *site) config(t *testing.T) savedConfig {
	t.Helper()
	file := s.mkdir("saved") + "/app.tar"
	s.ok("save", "local/app", "-o", file, "--format", "oci")
	r := s.finish(s.command(program(t, "skopeo"), "inspect", "--config", "oci-archive:"+file))
	var whole struct {
		Config  savedConfig
		History []struct{ CreatedBy string }
	}
	if err := json.Unmarshal([]byte(r.stdout), &whole); r.code != 0 || err != nil {
		t.Fatalf("skopeo inspect: %+v %v", r, err)
	}
	return whole.Config
}

// TestBuildLayers checks that each step of a stage with and without a network is in a layer of its own, also if it has
// more than one sandbox can make, and that the runner's files are in none.
func TestBuildLayers(t *testing.T) {
	s := newSite(t, newGallery(t))
	for egress, steps := range map[string]int{"none": 85, "package-managers": 3} {
		s.build("FROM local/bb AS one\nRUN mkdir /out /in /many && echo x > /out/x\n"+strings.Repeat("RUN echo x >> /many/n\n", steps)+
			"FROM one\nRUN cat /out/x\nRUN rm -r /out && echo left > /left\nRUN --network=none echo quiet > /quiet\n",
			"--no-cache", "-t", "local/app", "--egress", egress)
		names := s.finish(s.command("/bin/sh", "-c", bin+"/demesne export local/app | tar t | grep -v ^bin | sort | tr '\\n' ' '"))
		if got := names.stdout; got != "etc/ etc/group etc/passwd home/ home/alice/ in/ left many/ many/n quiet root/ tmp/ usr/ " {
			t.Errorf("%s: %q", egress, got)
		}
		if got := s.inside("local/app", "wc -l < /many/n"); got != fmt.Sprintln(steps) {
			t.Errorf("%s: %s steps", egress, got)
		}
	}
}

// TestBuildGC checks that gc --build removes the results and caches that were not used for a week, and no others.
func TestBuildGC(t *testing.T) {
	s := newSite(t, newGallery(t))
	file := "FROM local/bb\nRUN --mount=type=cache,target=/c echo 1 >> /c/n; cat /c/n\nRUN echo 2\n"
	s.build(file)
	for i, c := range []struct {
		args  []string
		age   time.Duration
		again int // steps cached afterwards
	}{
		{[]string{"gc", "--build"}, 6 * 24 * time.Hour, 2},
		{[]string{"gc"}, 8 * 24 * time.Hour, 2},
		{[]string{"gc", "--build"}, 8 * 24 * time.Hour, 0},
		{[]string{"gc", "--build", "--older-than", "1h"}, 2 * time.Hour, 0},
		{[]string{"gc", "--build", "--all"}, 0, -1}, // the base has gone
	} {
		used := time.Now().Add(-c.age)
		for _, pattern := range []string{"/steps/*", "/caches/*.lock"} {
			found, _ := filepath.Glob(s.store + pattern)
			for _, f := range found {
				os.Chtimes(f, used, used)
			}
		}
		s.ok(c.args...)
		if c.again < 0 {
			continue
		}
		if got := strings.Count(s.build(file), " CACHED "); got != c.again {
			t.Errorf("%d: %q: %d cached, want %d", i, c.args, got, c.again)
		}
	}
	if left, _ := filepath.Glob(s.store + "/caches/*"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestBuildCache checks which changes execute a step again.
func TestBuildCache(t *testing.T) {
	s := newSite(t, newGallery(t))
	s.put("a", "1")
	s.put("b", "1")
	file := "FROM local/bb AS one\nARG V=1\nRUN echo $V > /v\nCOPY a /a\nRUN cat /a\nFROM local/bb\nCOPY --from=one /a /a\nRUN cat /a\n"
	hits := func(flags ...string) int {
		return strings.Count(s.build(file, flags...), " CACHED ")
	}
	for _, c := range []struct {
		what   string
		change func()
		flags  []string
		hits   int
	}{
		{"first", nil, nil, 0},
		{"same", nil, nil, 5},
		{"another file", func() { s.put("b", "2") }, nil, 5},
		{"time of a file", func() { os.Chtimes(s.ctx+"/a", time.Now(), time.Unix(1, 0)) }, nil, 5},
		{"content", func() { s.put("a", "2") }, nil, 1},
		{"argument", nil, []string{"--build-arg", "V=2"}, 1}, // the second stage has the same layers below its RUN
		{"both again", nil, nil, 5},
		{"no cache", nil, []string{"--no-cache"}, 0},
		{"mode of a file", func() { os.Chmod(s.ctx+"/a", 0o755) }, nil, 1},
	} {
		if c.change != nil {
			c.change()
		}
		if got := hits(c.flags...); got != c.hits {
			t.Errorf("%s: %d cached, want %d", c.what, got, c.hits)
		}
	}
	digests := map[string]bool{}
	for _, file := range []string{"MAINTAINER a\nCOPY --from=one / /\nMAINTAINER a\nCOPY --from=one / /\n", "MAINTAINER a\nCOPY --from=one / /\nMAINTAINER a\nCOPY --from=one / /\n",
		"COPY --from=one / /\nRUN touch /x\nCOPY --from=one / /\n"} {
		s.put("Containerfile", "FROM local/bb AS one\nFROM scratch\n"+file)
		digests[s.ok("build", "-q", "--egress", "none", s.ctx)] = true
	}
	if len(digests) != 2 {
		t.Errorf("equal copies to an empty base: %v", digests)
	}
}

// TestBuildMounts checks the mounts, users and networks of RUN.
func TestBuildMounts(t *testing.T) {
	needIDs(t)
	s := newSite(t, newGallery(t))
	s.put("tool", "tool\n")
	s.build(`FROM local/bb AS made
RUN echo made > /made
FROM local/bb
RUN --mount=type=cache,target=/cache echo 1 >> /cache/n
RUN --mount=type=cache,target=/cache echo 2 >> /cache/n && cat /cache/n > /seen
RUN --mount=type=bind,source=tool,target=/tool cat /tool >> /seen
RUN --mount=type=bind,from=made,source=/made,target=/m cat /m >> /seen
RUN --mount=type=bind,target=/all ls /all >> /seen
USER alice
RUN id -u > /tmp/uid
USER 0
RUN cat /tmp/uid >> /seen; id -u >> /seen
RUN --network=none grep -c eth0 /proc/net/dev >> /seen || true
`, "-t", "local/app")
	s.see(t, "cat /seen; ls -d /cache /tool /m /all 2>/dev/null; true", "1\n2\ntool\nmade\nContainerfile\ntool\n1000\n0\n0\n")
}

// TestBuildSecret checks that the value of a secret is only where it is used: in no layer, history, key or file.
func TestBuildSecret(t *testing.T) {
	s := newSite(t, newGallery(t))
	value := "hunter2-7f3a9c"
	src := s.file("token", value, 0o600)
	out := s.build("FROM local/bb\nRUN --mount=type=secret,id=token,required=true cat /run/secrets/token | wc -c > /n\n"+
		"RUN --mount=type=secret,id=token,env=TOKEN test -n \"$TOKEN\" && echo ok > /ok\n"+
		"RUN ls -A /run/secrets 2>/dev/null | wc -l > /left\n",
		"-t", "local/app", "--secret", "id=token,src="+src)
	s.see(t, "cat /n /ok /left", "14\nok\n0\n")
	if strings.Contains(out, value) {
		t.Error("progress has it")
	}
	os.Remove(src)
	for _, dir := range []string{s.store, s.dir + "/k", s.home, s.run} {
		filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if raw, _ := os.ReadFile(path); bytes.Contains(raw, []byte(value)) {
					t.Errorf("%s has it", path)
				}
			}
			return nil
		})
	}
	s.refused(t, "FROM local/bb\nRUN --mount=type=secret,id=nosuch,required=true true\n", []string{"Containerfile:2:", `no secret "nosuch"`})
}

// TestBuildCopy checks names, owners, links and the ignore file.
func TestBuildCopy(t *testing.T) {
	needIDs(t)
	s := newSite(t, newGallery(t))
	for _, f := range []string{"src/a.go", "src/a.txt", "src/deep/b.go", "skip/no", "skip/but", "notes.md"} {
		s.put(f, f+"\n")
	}
	os.Symlink("a.go", s.ctx+"/src/link")
	s.put(".dockerignore", "skip\n!skip/but\n*.md\n")
	s.build(`FROM local/bb AS from
RUN mkdir -p /opt/d && echo v > /opt/d/v && ln -s /opt /alias && ln -s v /opt/d/l && chown 7:8 /opt/d/v
FROM local/bb
RUN mkdir /real && ln -s /real /linked
COPY . /all
COPY src/*.go /go/
COPY --chown=alice:staff src/a.txt /linked/
COPY --parents src/deep/b.go /parents/
COPY --exclude=*.txt --exclude=deep src /excluded/
COPY --from=from /alias/d /d
COPY --link src/a.go /linkcopy/
`, "-t", "local/app")
	s.see(t, "cd /; find all go real parents excluded d linkcopy | sort; stat -c %u:%g /real/a.txt /d/v; readlink /d/l; readlink /excluded/link; readlink /linked",
		`all
all/.dockerignore
all/Containerfile
all/skip
all/skip/but
all/src
all/src/a.go
all/src/a.txt
all/src/deep
all/src/deep/b.go
all/src/link
d
d/l
d/v
excluded
excluded/a.go
excluded/link
go
go/a.go
linkcopy
linkcopy/a.go
parents
parents/src
parents/src/deep
parents/src/deep/b.go
real
real/a.txt
1000:50
7:8
v
a.go
/real
`)
}

// TestBuildOnbuild checks that the instructions of ONBUILD are executed in the next build, once.
func TestBuildOnbuild(t *testing.T) {
	s := newSite(t, newGallery(t))
	s.put("a", "a\n")
	s.build("FROM local/bb\nONBUILD COPY a /a\nONBUILD RUN cat /a > /b\n", "-t", "local/parent")
	s.build("FROM local/parent\nRUN cat /b > /c\n", "-t", "local/app")
	s.see(t, "cat /a /b /c", "a\na\na\n")
	if c := s.config(t); len(c.OnBuild) != 0 {
		t.Errorf("left: %q", c.OnBuild)
	}
}

// TestBuildReproducible checks that stores and users do not matter to the digest of a build with a timestamp.
func TestBuildReproducible(t *testing.T) {
	digests := map[string]bool{}
	for range 2 {
		s := newSite(t, newGallery(t))
		s.put("d/a", "a\n")
		s.put("Containerfile", "FROM local/bb\nRUN mkdir /x && echo 1 > /x/y\nCOPY d /d\nWORKDIR /w\nRUN rm -r /x; ln /d/a /twin\n")
		// The base has other times in each store, so it is made from scratch.
		raw, _ := fixture.Tar(s.busybox()...)
		s.file("ctx/root.tar", string(raw), 0o644)
		s.put("Containerfile", "FROM scratch\nADD root.tar /\nENV PATH=/bin\nRUN mkdir /x && echo 1 > /x/y\nCOPY d /d\nWORKDIR /w\nRUN rm -r /x; ln /d/a /twin\n")
		digests[s.ok("build", "-q", "--egress", "none", "--timestamp", "1000000000", s.ctx)] = true
		nextSecond()
	}
	if len(digests) != 1 {
		t.Errorf("digests differ: %v", digests)
	}
}

// TestBuildEpoch checks where the time of an image comes from.
func TestBuildEpoch(t *testing.T) {
	s := newSite(t, newGallery(t))
	for _, c := range []struct {
		head, env string
		flags     []string
		want      string // of a new file
	}{
		{"", "", nil, ""},
		{"ARG SOURCE_DATE_EPOCH=1000000001\n", "", nil, "1000000001"},
		{"ARG SOURCE_DATE_EPOCH=1000000001\n", "1000000002", nil, "1000000002"},
		{"ARG SOURCE_DATE_EPOCH=1000000001\n", "1000000002", []string{"--build-arg", "SOURCE_DATE_EPOCH=1000000003"}, "1000000003"},
		{"ARG SOURCE_DATE_EPOCH=1000000001\n", "1000000002", []string{"--build-arg", "SOURCE_DATE_EPOCH=1000000003", "--timestamp", "1000000004"}, "1000000004"},
		{"ARG SOURCE_DATE_EPOCH=1000000001\n", "", []string{"--build-arg", "SOURCE_DATE_EPOCH="}, ""},
		{"ARG A=7\nARG SOURCE_DATE_EPOCH=100000000$A\n", "", nil, "1000000007"},
		{"ARG SOURCE_DATE_EPOCH=one\n", "", nil, "error"},
		{"ARG SOURCE_DATE_EPOCH=-1\n", "", nil, "error"},
	} {
		s.put("Containerfile", c.head+"FROM local/bb\nRUN echo x > /x\n")
		cmd := s.cli(append(append([]string{"build", "-q", "--egress", "none", "-t", "local/app"}, c.flags...), s.ctx)...)
		if c.env != "" {
			cmd.Env = append(cmd.Env, "SOURCE_DATE_EPOCH="+c.env)
		}
		r := s.finish(cmd)
		if c.want == "error" {
			if r.code == 0 || !strings.Contains(r.stderr, "SOURCE_DATE_EPOCH") || !strings.Contains(r.stderr, "not a number of seconds") {
				t.Errorf("%q: %+v", c.head, r)
			}
			continue
		}
		if r.code != 0 {
			t.Fatalf("%+v: %+v", c, r)
		}
		if got := strings.TrimSpace(s.inside("local/app", "stat -c %Y /x")); c.want != "" && got != c.want || c.want == "" && strings.HasPrefix(got, "100000000") {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
