package integration

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"demesne/integration/fixture"
)

// TestBuildStdin checks contexts and Containerfiles from stdin.
func TestBuildStdin(t *testing.T) {
	s := newSite(t, newGallery(t))
	with := func(input []byte, args ...string) result {
		cmd := s.cli(append([]string{"build", "--egress", "none", "-t", "local/app"}, args...)...)
		cmd.Stdin = bytes.NewReader(input)
		return s.finish(cmd)
	}
	if r := with([]byte("FROM local/bb\nRUN echo 1 > /one\n"), "-"); r.code != 0 {
		t.Errorf("Containerfile: %+v", r)
	}
	s.see(t, "cat /one", "1\n")
	raw, err := fixture.Tar(fixture.File("Dockerfile", "FROM local/bb\nCOPY d /d\n"), fixture.File("d/a", "a\n"), fixture.Link("d/l", "/etc/passwd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, input := range [][]byte{raw, []byte(gzipped(t, raw))} {
		if r := with(input, "-"); r.code != 0 {
			t.Errorf("tar: %+v", r)
		}
		s.see(t, "cat /d/a; readlink /d/l", "a\n/etc/passwd\n")
	}
	s.put("f", "f\n")
	if r := with([]byte("FROM local/bb\nCOPY f /f\n"), "-f", "-", s.ctx); r.code != 0 {
		t.Errorf("-f -: %+v", r)
	}
	s.see(t, "cat /f", "f\n")
	for _, e := range [][]fixture.Entry{
		{fixture.File("../out", "x")},
		{fixture.Link("d", "/tmp"), fixture.File("d/out", "x")},
		{fixture.Link("Dockerfile", "/etc/passwd")},
	} {
		raw, _ := fixture.Tar(e...)
		if r := with(raw, "-"); r.code != 125 || !strings.Contains(r.stderr, "demesne: build: ") {
			t.Errorf("%v: %+v", e, r)
		}
	}
	s.intact(t)
}

// TestBuildAdd checks that ADD unpacks local archives, also hostile ones, only below the destination.
func TestBuildAdd(t *testing.T) {
	s := newSite(t, newGallery(t))
	raw, err := fixture.Tar(fixture.Dir("d"), fixture.Mode("d/x", "x\n", 0o750), fixture.Link("d/l", "/etc/passwd"), fixture.Hard("d/h", "d/x"))
	if err != nil {
		t.Fatal(err)
	}
	s.file("ctx/a.tar", string(raw), 0o644)
	s.file("ctx/a.tgz", gzipped(t, raw), 0o644)
	s.file("ctx/text.gz", gzipped(t, []byte("text")), 0o644)
	s.build("FROM local/bb\nADD a.tar /one\nADD a.tgz /two/\nADD text.gz /three/\nADD --unpack=false a.tar /four/\nCOPY a.tar /five/\n", "-t", "local/app")
	s.see(t, "cd /; find one two three four five | sort | tr '\\n' ' '; stat -c '%a %h' /one/d/x; readlink /two/d/l",
		"five five/a.tar four four/a.tar one one/d one/d/h one/d/l one/d/x three three/text.gz two two/d two/d/h two/d/l two/d/x 750 2\n/etc/passwd\n")
	for kind, tool := range map[string][]string{"xz": {program(t, "xz"), "-9"}, "zst": {program(t, "zstd"), "-q"}} {
		cmd := exec.Command(tool[0], append(tool[1:], "-c", s.ctx+"/a.tar")...)
		packed, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		s.file("ctx/a.tar."+kind, string(packed), 0o644)
		s.build("FROM local/bb\nADD a.tar."+kind+" /d\n", "-t", "local/app")
		s.see(t, "cat /d/d/x", "x\n")
	}
	device := fixture.File("dev", "")
	device.Typeflag = '3'
	for want, e := range map[string][]fixture.Entry{
		"leads out":   {fixture.File("../../x", "x")},
		"device":      {device},
		"etc/passwd2": {fixture.Hard("h", "etc/passwd2")},
	} {
		raw, err := fixture.Tar(e...)
		if err != nil {
			t.Fatal(err)
		}
		s.file("ctx/bad.tar", string(raw), 0o644)
		s.refused(t, "FROM local/bb\nADD bad.tar /bad/\n", []string{"Containerfile:2:", want})
	}
}

// TestBuildRefused checks that wrong input is refused with file, line and reason.
func TestBuildRefused(t *testing.T) {
	s := newSite(t, newGallery(t))
	s.put("a", "a")
	os.Symlink("/etc/passwd", s.ctx+"/out")
	syscall.Mkfifo(s.ctx+"/fifo", 0o644)
	for _, c := range []struct {
		file  string
		parts []string
	}{
		{"FROM b AS a\nCOPY --from=b / /\nFROM a AS b\n", []string{"Containerfile:", "needs itself"}},
		{"FROM local/bb\nFETCH x\n", []string{"Containerfile:2:", "FETCH"}},
		{"RUN x\n", []string{"Containerfile"}},
		{"", []string{"Containerfile"}},
		{"FROM local/bb\nCOPY ../x /\n", []string{"Containerfile:2:", "outside of the context"}},
		{"FROM local/bb\nCOPY nosuch /\n", []string{"Containerfile:2:", `"nosuch"`}},
		{"FROM local/bb\nCOPY out /\n", []string{"Containerfile:2:", `"out"`}},
		{"FROM local/bb\nCOPY fifo /\n", []string{"Containerfile:2:", "FIFO"}},
		{"FROM nosuch\n", []string{"Containerfile:1:", "nosuch"}},
		{"FROM local/bb\nRUN --network=host true\n", []string{"Containerfile:2:", "--network=host"}},
		{"FROM local/bb\nRUN --security=insecure true\n", []string{"Containerfile:2:", "--security"}},
		{"FROM local/bb\n\nRUN exit 7\n", []string{"Containerfile:3:", "exit code 7"}},
		{"FROM local/bb\nCOPY --chown=nosuch a /\n", []string{"Containerfile:2:", "nosuch"}},
		{"FROM local/bb\nCOPY a a /x\n", []string{"Containerfile:2:", "directory"}},
		{strings.Repeat("# a line\n", 10<<20/9), []string{"Containerfile", "larger than"}},
	} {
		s.refused(t, c.file, c.parts)
	}
	if all := strings.Fields(s.ok("ls", "-q")); len(all) != 0 {
		t.Errorf("sandboxes are left: %q", all)
	}
	if all := s.listed(); len(all) != 1 {
		t.Errorf("images are left: %+v", all)
	}
}

// TestBuildFull checks that a stage cannot write more than its limit, and that nothing is left then.
func TestBuildFull(t *testing.T) {
	s := newSite(t, newGallery(t))
	s.refused(t, "FROM local/bb\nRUN dd if=/dev/zero of=/big bs=1M count=200\n", []string{"Containerfile:2:"}, "--disk", "32M")
	if all := strings.Fields(s.ok("ls", "-q")); len(all) != 0 {
		t.Errorf("sandboxes are left: %q", all)
	}
}

// TestBuildKilled checks that a build that is interrupted or killed leaves no sandbox, process or secret.
func TestBuildKilled(t *testing.T) {
	s := newSite(t, newGallery(t))
	src := s.file("token", "value-51ab", 0o600)
	s.put("Containerfile", "FROM local/bb\nRUN echo 1 > /a\nRUN --mount=type=secret,id=t echo started && sleep 1000\n")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		cmd := s.cli("build", "--egress", "none", "--secret", "id=t,src="+src, s.ctx)
		text := heard(cmd)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the command to start", func() bool { return strings.Contains(text(), "] started") })
		cmd.Process.Signal(sig)
		cmd.Wait()
		eventually(t, sig.String()+": the sandbox to end", func() bool { return s.ok("ls", "-q") == "" && len(descendants()) == 0 })
		if code := cmd.ProcessState.ExitCode(); sig != syscall.SIGKILL && code != 128+int(sig) {
			t.Errorf("%s: exit %d", sig, code)
		}
	}
	s.build("FROM local/bb\nRUN true\n", "-t", "local/app")
	if left, _ := filepath.Glob(s.run + "/demesne-build-*"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	s.ok("gc")
	if all := s.listed(); len(all) != 2 {
		t.Errorf("images are left: %+v", all)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// heard returns what a command has written to its stderr so far. It is called before the command starts.
func heard(cmd *exec.Cmd) (text func() string) {
	var mu sync.Mutex
	var seen strings.Builder
	cmd.Stderr = writer(func(p []byte) (int, error) { mu.Lock(); defer mu.Unlock(); return seen.Write(p) })
	return func() string { mu.Lock(); defer mu.Unlock(); return seen.String() }
}

// TestBuildParallel checks that stages run at once, and that builds of one file share their steps.
func TestBuildParallel(t *testing.T) {
	s := newSite(t, newGallery(t))
	began := time.Now()
	s.build("FROM local/bb AS a\nRUN sleep 3; echo a > /a\nFROM local/bb AS b\nRUN sleep 3; echo b > /b\nFROM local/bb\nCOPY --from=a /a /\nCOPY --from=b /b /\n", "-t", "local/app")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
	s.see(t, "cat /a /b", "a\nb\n")
	s.put("Containerfile", "FROM local/bb\nRUN sleep 2; date > /when; echo $$ >> /when\n")
	var wg sync.WaitGroup
	digests := make([]string, 3)
	executed := make([]bool, 3)
	for i := range digests {
		wg.Go(func() {
			r := s.do("build", "--egress", "none", s.ctx)
			digests[i], executed[i] = r.stdout, strings.Contains(r.stderr, " DONE ")
		})
	}
	wg.Wait()
	if n := len(slices.DeleteFunc(executed, func(b bool) bool { return !b })); n != 1 {
		t.Errorf("%d of three builds executed the step: %q", n, digests)
	}
}
