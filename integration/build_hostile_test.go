package integration

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"demesne/integration/fixture"
)

// intact checks that a store is whole, and that nothing of a build is left.
func (s *site) intact(t *testing.T) {
	t.Helper()
	if r := s.do("images", "check"); r.code != 0 {
		t.Errorf("images check: %+v", r)
	}
	eventually(t, "no sandbox to be left", func() bool { return s.ok("ls", "-q") == "" })
	for _, pattern := range []string{s.run + "/demesne-build-*", s.dir + "/tmp/demesne-build-*", s.store + "/partial/*"} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}
}

// TestBuildSteps checks that no step changes another step's result, in its own build or in another: by a process that it
// leaves, by a file that is in no layer, or by its mounts.
func TestBuildSteps(t *testing.T) {
	s := newSite(t, newGallery(t))
	src := s.file("token", "value-77e1", 0o600)
	const daemon = "RUN (while true; do echo evil > /tool; done) & (setsid sleep 1000 &) ; sleep 0.1; rm -f /tool\n"
	s.build("FROM local/bb\n"+daemon+"RUN rm -f /tool; sleep 0.2; ls /tool 2>/dev/null > /seen; ps | grep -c 'sleep 1000$' >> /seen; true\n", "-t", "local/app", "--no-cache")
	s.see(t, "cat /seen", "0\n")
	for _, evil := range []string{
		"RUN echo evil > /etc/hosts\n", "RUN echo evil > /etc/resolv.conf\n", "RUN mkdir -p /etc/apt/apt.conf.d && echo evil > /etc/apt/apt.conf.d/99demesne\n",
		"RUN echo evil > /dev/shm/x\n", "RUN echo evil > /.demesne/workspace/x\n",
	} {
		const honest = "RUN cat /etc/hosts /etc/resolv.conf /etc/apt/apt.conf.d/* /dev/shm/* /.demesne/workspace/* > /copy 2>/dev/null; true\n"
		s.build("FROM local/bb\n"+evil+honest, "-t", "local/evil")
		s.build("FROM local/bb\n"+honest, "-t", "local/app")
		s.see(t, "grep evil /copy; true", "")
		s.build("FROM local/bb AS a\n"+evil+"FROM local/bb\nCOPY --from=a /etc /copied\n", "-t", "local/evil")
		s.build("FROM local/bb AS a\nFROM local/bb\nCOPY --from=a /etc /copied\n", "-t", "local/app")
		s.see(t, "grep -r evil /copied; true", "")
	}
	s.refused(t, "FROM local/bb AS a\nRUN --mount=type=secret,id=t true\nFROM local/bb\nCOPY --from=a /run/secrets /s/\n",
		[]string{"Containerfile:4:", "/run/secrets"}, "--secret", "id=t,src="+src)
	s.build("FROM local/bb\nRUN --mount=type=secret,id=t true\nRUN --mount=type=cache,target=/c ls /run/secrets > /seen 2>&1; env >> /seen; cat /proc/*/environ /proc/*/cmdline >> /seen; true\n",
		"-t", "local/app", "--secret", "id=t,src="+src)
	s.see(t, "grep -c value-77e1 /seen; true", "0\n")
	began := time.Now()
	s.build("FROM local/bb AS a\nRUN --mount=type=cache,target=/c,sharing=locked true\nFROM local/bb\nCOPY --from=a /bin /b\nRUN --mount=type=cache,target=/c,sharing=locked true\n")
	if took := time.Since(began); took > time.Minute {
		t.Errorf("a locked cache: %s", took)
	}
	s.intact(t)
}

// TestBuildHostileRun checks what commands of a RUN may do to their sandbox, its layer and this machine.
func TestBuildHostileRun(t *testing.T) {
	needIDs(t)
	s := newSite(t, newGallery(t))
	for _, c := range []struct{ run, want string }{ // the error; "": none
		{"touch /.wh.etc", `".wh.etc": a layer has no names`},
		{"mkdir /d && touch /d/.wh..wh..opq", `"d/.wh..wh..opq": a layer has no names`},
		{"mknod /z c 0 0", "exit code 1"},
		{"mknod /z b 8 0", "exit code 1"},
		{"echo x > /proc/sys/kernel/core_pattern", "exit code 1"},
		{"kill -9 1; kill -9 -1; false", "exit code 1"},
		{"kill -9 $$", "SIGKILL"},
		{"b() { b | b & }; (b); i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done", ""},
		{"mkdir -p /etc/apt/apt.conf.d; echo x > /etc/apt/apt.conf.d/99demesne; ln /etc/apt/apt.conf.d/99demesne /z", ""},
		{"ln /etc/hosts /z", ""},
		{"mv /etc /etc2; ln -s /tmp /etc", ""},
		{"rm -rf /.demesne; mkdir -p /.demesne/new; echo x > /.demesne/new/x", ""},
		{"chmod 0 / /tmp /etc", ""},
		{"cp /bin/busybox /s && chmod 6755 /s; mkfifo /f", ""},
		{"mkdir /deep; cd /deep; i=0; while [ $i -lt 500 ]; do mkdir ddd; cd ddd; i=$((i+1)); done", ""},
		{"mkdir /deep; cd /deep; i=0; while [ $i -lt 600 ]; do mkdir d; cd d; i=$((i+1)); done", "more than 4095 bytes or 512 components"},
		{"truncate -s 1024G /big", "cannot have 1048576 MiB of holes"},
		{"truncate -s 300M /big", ""},
		{"ls /.demesne/in /proc/1/fd; cat /proc/1/environ; false", "exit code 1"},
	} {
		text := "FROM local/bb\nRUN " + c.run + "\nRUN echo fine\n"
		if c.want != "" {
			s.refused(t, text, []string{"Containerfile:2:", c.want})
			continue
		}
		if out := s.build(text); !strings.Contains(out, "fine") {
			t.Errorf("%s: %s", c.run, out)
		}
	}
	s.intact(t)
}

// TestBuildPlaces checks that a Containerfile names nothing of this machine: as a base, a source or a mount.
func TestBuildPlaces(t *testing.T) {
	s := newSite(t, newGallery(t))
	tar := s.file("outside.tar", "not for builds", 0o644)
	for _, c := range [][2]string{
		{"FROM oci-archive:" + tar, "Containerfile:1:"}, {"FROM docker-archive:" + tar, "Containerfile:1:"}, {"FROM oci:/etc", "Containerfile:1:"},
		{"FROM host", "Containerfile:1:"}, {"FROM /etc", "Containerfile:1:"}, {"FROM dir:/etc", "Containerfile:1:"}, {"FROM ../x", "Containerfile:1:"},
		{"FROM local/bb\nCOPY --from=oci:/etc / /x", "Containerfile:2:"},
		{"FROM local/bb\nRUN --mount=type=bind,from=docker-archive:" + tar + ",target=/x true", "Containerfile:2:"},
		{"FROM local/bb\nRUN --mount=type=bind,source=../../etc,target=/x true", "Containerfile:2:"},
		{"FROM local/bb\nRUN --mount=type=cache,target=/ true", "Containerfile:2:"},
		{"FROM local/bb\nRUN --mount=type=cache,target=/proc true", "Containerfile:2:"},
		{"FROM local/bb\nRUN --mount=type=cache,target=/a/../dev true", "Containerfile:2:"},
	} {
		s.refused(t, c[0]+"\n", []string{c[1]})
	}
	s.build("FROM local/bb\nRUN --mount=type=cache,target=/c,id=../../../etc ls /c | wc -l > /n\n", "-t", "local/app")
	s.see(t, "cat /n", "0\n")
	s.intact(t)
}

// TestBuildArchives checks ADD of archives that would link, write or grow out of their directory, as the image sees it.
func TestBuildArchives(t *testing.T) {
	s := newSite(t, newGallery(t))
	for name, e := range map[string][]fixture.Entry{
		"links":  {fixture.Link("up", "../.."), fixture.File("up/written", "inside the image\n"), fixture.Link("abs", "/tmp"), fixture.File("abs/also", "x")},
		"twice":  {fixture.File("a", "1"), fixture.File("a", "2"), fixture.Link("a", "b"), fixture.File("a", "3")},
		"shadow": {fixture.Hard("h", "/etc/passwd")},
		"own":    {fixture.File("proc/x", "x")},
		"white":  {fixture.File(".wh.x", "")},
	} {
		raw, err := fixture.Tar(e...)
		if err != nil {
			t.Fatal(err)
		}
		s.file("ctx/"+name+".tar", string(raw), 0o644)
	}
	s.build("FROM local/bb\nADD links.tar /d/e/\nADD twice.tar /t/\nRUN cat /written /t/a; ls -l /t\n", "-t", "local/app")
	s.see(t, "cat /written /t/a; test -e /tmp/also && echo also", "inside the image\n3also\n")
	s.refused(t, "FROM local/bb\nADD shadow.tar /d/\n", []string{"Containerfile:2:", "etc/passwd"})
	s.refused(t, "FROM local/bb\nADD own.tar /\n", []string{"Containerfile:2:", "/proc/x"})
	s.refused(t, "FROM local/bb\nADD white.tar /\n", []string{"Containerfile:2:", ".wh.x"})
	s.intact(t)
}

// TestBuildCollected checks that builds of one file, and gc, do not take layers or images from each other.
func TestBuildCollected(t *testing.T) {
	s := newSite(t, newGallery(t))
	s.put("a", "a")
	s.put("Containerfile", "FROM local/bb\nRUN echo 1 > /1\nCOPY a /a\nRUN --mount=type=cache,target=/c echo 2 > /2\nRUN echo 3 > /3\n")
	var builds, gc sync.WaitGroup
	end := make(chan struct{})
	gc.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
				s.do("gc") // it may refuse while a sandbox is made
			}
		}
	})
	for range 3 {
		builds.Go(func() {
			for range 3 {
				if r := s.do("build", "--no-cache", "-q", "--egress", "none", s.ctx); r.code != 0 {
					t.Errorf("build: %+v", r)
				}
			}
		})
	}
	builds.Wait()
	close(end)
	gc.Wait()
	s.intact(t)
}

// TestBuildHeld checks that gc --all takes neither a base nor its layers from a build, and that a build fetches layers that
// gc --blobs dropped.
func TestBuildHeld(t *testing.T) {
	s := newSite(t, newGallery(t))
	s.put("Containerfile", "FROM local/bb AS first\nRUN echo 1 > /1\nRUN echo started && while [ ! -e /tmp/never ]; do sleep 1; [ $((n += 1)) -lt 4 ] || break; done\n"+
		"RUN --mount=type=cache,target=/c echo 2 > /2\nFROM local/bb\nCOPY --from=first /1 /2 /\nRUN cat /1 /2\n")
	cmd := s.cli("build", "--progress", "plain", "--egress", "none", "-t", "local/app", s.ctx)
	text := heard(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command to start", func() bool { return strings.Contains(text(), "] started") })
	s.ok("gc", "--all", "--build")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("build beside gc --all: %v\n%s", err, text())
	}
	if got := s.inside("local/app", "cat /1 /2"); got != "1\n2\n" {
		t.Errorf("files: %q", got)
	}
	ref, _ := s.simple("team/base")
	s.ok("pull", ref)
	if out := s.ok("gc", "--blobs"); !strings.Contains(out, "freed") {
		t.Errorf("gc: %s", out)
	}
	s.build("FROM "+ref+"\nRUN echo 3 > /3\n", "-t", "local/app")
	s.ok("save", "-o", s.dir+"/app.tar", "local/app") // with the layers of the base
	s.ok("rmi", "local/app")
	s.ok("gc", "--blobs", "--build")
	s.reg.Fail(func(*http.Request) *fixture.Fault { return &fixture.Fault{Status: http.StatusNotFound} })
	s.refused(t, "FROM "+ref+"\nRUN echo 4 > /4\n", []string{"Containerfile:1: ", "dropped"})
	s.intact(t)
}

// TestBuildLost checks that a build whose sandbox or runner is killed ends with the line of its step, and leaves nothing.
func TestBuildLost(t *testing.T) {
	s := newSite(t, newGallery(t))
	s.put("Containerfile", "FROM local/bb\nRUN echo 1 > /a\nRUN echo started && sleep 1000\n")
	for _, victim := range []string{"demesne-init", "demesne-runner"} {
		cmd := s.cli("build", "--egress", "none", s.ctx)
		text := heard(cmd)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the command to start", func() bool { return strings.Contains(text(), "] started") })
		killed := 0
		for _, p := range descendants() {
			if strings.HasPrefix(victim, p.name) || strings.HasPrefix(p.name, "."+victim[:10]) {
				killed++
				syscall.Kill(p.pid, syscall.SIGKILL)
			}
		}
		if killed == 0 {
			t.Fatalf("no %s among %v", victim, descendants())
		}
		err := cmd.Wait()
		if err == nil || !strings.Contains(lastLines(text()), "Containerfile:3: ") {
			t.Errorf("%s: %v\n%s", victim, err, text())
		}
		eventually(t, victim+": the sandbox to end", func() bool { return s.ok("ls", "-q") == "" && len(descendants()) == 0 })
		s.intact(t)
	}
}

// TestBuildFullDisk checks that a build on a full disk fails with the line of its step, keeps the store whole, and
// succeeds once there is space.
func TestBuildFullDisk(t *testing.T) {
	need(t, exec.Command("unshare", "-rm", "true").Run() == nil, "user namespaces for unshare")
	b := newBox(t)
	out := b.mkdir("out")
	b.extra = append(b.extra, "OUT="+out, "BUSYBOX="+program(t, "busybox"))
	r := b.onFullDisk("80m", `
		mkdir -p $OUT/base/bin $OUT/ctx && cp $BUSYBOX $OUT/base/bin/ && ln -s busybox $OUT/base/bin/sh && head -c 1M /dev/zero > $OUT/ctx/mega
		demesne import -q $OUT/base local/bb > /dev/null || exit 1
		printf 'FROM local/bb\nRUN echo 1 > /a\nCOPY mega /m\nRUN busybox dd if=/dev/zero of=/z bs=1M count=1\n' > $OUT/ctx/Containerfile
		printf 'FROM local/bb\nRUN echo 1 > /a\n' > $OUT/ctx/First
		demesne build -q --egress none -f $OUT/ctx/First $OUT/ctx > /dev/null || exit 2
		fill
		demesne build -q --egress none $OUT/ctx > $OUT/said 2>&1; echo "full: $?, $(grep -c '^demesne: build: Containerfile:[0-9]*: .*no space' $OUT/said)"
		empty
		demesne images check > /dev/null; echo "check $?"
		find home -name 'put-*' -o -name 'demesne-build-*' -o -name '*.tmp'
		demesne ls -q
		demesne build -q --egress none $OUT/ctx > $OUT/said 2>&1; echo "again: $?"`)
	if want := "full: 125, 1\ncheck 0\nagain: 0\n"; r.stdout != want {
		said, _ := os.ReadFile(out + "/said")
		t.Errorf("exit %d: %s\nwant: %s\nsaid: %s\nstderr: %s", r.code, r.stdout, want, said, strings.TrimSpace(r.stderr))
	}
}
