package pid1_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"

	"golang.org/x/sys/unix"
)

// plain returns a sandbox without namespaces, with the usual restrictions.
func plain(t *testing.T) *sandbox {
	t.Helper()
	return start(t, asNobody).setup(pid1api.Setup{Landlock: wide(), Scoped: true, Subreaper: true})
}

func TestExitStatus(t *testing.T) {
	s := plain(t)
	for _, tt := range []struct {
		script string
		want   syscall.WaitStatus
	}{
		{"exit 0", 0},
		{"exit 7", 7 << 8},
		{"kill -9 $$", 9},
		{"kill -TERM $$", 15},
		{"kill -PIPE $$", 13},
	} {
		if _, got := s.run(sh(tt.script)); got&0xff7f != tt.want {
			t.Errorf("%s: status %#x, want %#x", tt.script, got, tt.want)
		}
	}
}

func TestArgumentsAreBinary(t *testing.T) {
	s := plain(t)
	g := args("printf", "%s|", "a b", "", "\xff\xfe", "$(id)", "new\nline")
	if got, want := s.must(g), "a b||\xff\xfe|$(id)|new\nline|"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	g = args("env")
	g.Env = ipc.ByteStrings([]string{"PATH=/usr/bin:/bin", "B=\xff"})
	if got, want := s.must(g), "PATH=/usr/bin:/bin\nB=\xff"; got != want {
		t.Errorf("environment %q, want %q", got, want)
	}
}

func TestRusage(t *testing.T) {
	s := plain(t)
	p, err := s.begin(sh("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"))
	if err != nil {
		t.Fatal(err)
	}
	if e := p.wait(); e.MaxRSS == 0 || e.UTime+e.STime == 0 {
		t.Errorf("usage %+v", e)
	}
}

func TestCannotExecute(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	os.Chmod(filepath.Dir(dir), 0o755)
	for name, f := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"plain":  {"text", 0o644},
		"noexec": {"text", 0o755}, // ENOEXEC
		"interp": {"#!/not/there\n", 0o755},
		"works":  {"#!/bin/sh\necho works $0\n", 0o755},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(f.text), f.mode); err != nil {
			t.Fatal(err)
		}
		os.Chmod(path, f.mode)
	}
	os.Mkdir(filepath.Join(dir, "locked"), 0)
	s := plain(t)
	before := fdsOf(t, s.cmd.Process.Pid)
	for _, tt := range []struct {
		name string
		argv string
		path string
		dir  string
		want ipc.Code
	}{
		{"missing", "no-such-command", "", "/", ipc.CodeCommandNotFound},
		{"missing file", "/no/such/file", "", "/", ipc.CodeCommandNotFound},
		{"below a file", "/etc/passwd/x", "", "/", ipc.CodeCommandNotFound},
		{"empty", "", "", "/", ipc.CodeInvalid},
		{"NUL", "a\x00b", "", "/", ipc.CodeInvalid},
		{"directory", "/tmp", "", "/", ipc.CodeNotExecutable},
		{"no x bit", dir + "/plain", "", "/", ipc.CodeNotExecutable},
		{"no x bit in PATH", "plain", dir, "/", ipc.CodeNotExecutable},
		{"directory in PATH", "locked", dir, "/", ipc.CodeNotExecutable},
		{"no format", dir + "/noexec", "", "/", ipc.CodeNotExecutable},
		{"no interpreter", dir + "/interp", "", "/", ipc.CodeNotExecutable},
		{"no directory", "true", "", "/not/there", ipc.CodeInvalid},
		{"not a directory", "true", "", "/etc/passwd", ipc.CodeInvalid},
		{"locked directory", "true", "", dir + "/locked", ipc.CodeInvalid},
		{"second in PATH", "works", "/not/there:" + dir, "/", ""},
		{"refused, then found", "plain", dir + "/locked:" + dir, "/", ipc.CodeNotExecutable},
		{"relative to dir", "./works", "", dir, ""},
		{"relative PATH", "works", ".", dir, ""},
		{"empty PATH element", "works", "/bin:", dir, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := args(tt.argv)
			g.Dir = ipc.Bytes(tt.dir)
			if tt.path != "" {
				g.Env = ipc.ByteStrings([]string{"PATH=" + tt.path})
			}
			p, err := s.begin(g)
			if err == nil {
				p.out.Close()
				p.wait()
			}
			var e *ipc.Error
			errors.As(err, &e)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("error %v", err)
			case tt.want != "" && (e == nil || e.Code != tt.want):
				t.Errorf("error %v, want code %s", err, tt.want)
			}
			t.Log(err)
		})
	}
	for _, tt := range []struct {
		lines []string
		want  string // on stdout
		code  ipc.Code
	}{
		{[]string{"no-such-command", dir + "/plain", dir + "/noexec", dir + "/interp", dir + "/works", dir + "/missing"}, "works " + dir + "/works", ""},
		{[]string{dir + "/works", "no-such-command"}, "works " + dir + "/works", ""},
		{[]string{dir + "/plain", "no-such-command"}, "", ipc.CodeCommandNotFound},
		{[]string{"no-such-command", dir + "/plain"}, "", ipc.CodeNotExecutable},
		{[]string{dir + "/works", "a\x00b"}, "", ipc.CodeInvalid},
		{[]string{dir + "/works", ""}, "", ipc.CodeInvalid},
	} {
		g := args(tt.lines[0])
		for _, l := range tt.lines[1:] {
			g.Else = append(g.Else, ipc.ByteStrings([]string{l}))
		}
		var e *ipc.Error
		p, err := s.begin(g)
		got := ""
		if err == nil {
			got = strings.TrimSpace(readAll(p.out))
			p.out.Close()
			p.wait()
		}
		if errors.As(err, &e); got != tt.want || tt.code != "" && (e == nil || e.Code != tt.code) || tt.code == "" && err != nil {
			t.Errorf("%q: %q, %v", tt.lines, got, err)
		}
	}
	fds := fdsOf(t, s.cmd.Process.Pid)
	for end := time.Now().Add(time.Minute); len(fds) > len(before) && time.Now().Before(end); fds = fdsOf(t, s.cmd.Process.Pid) {
		time.Sleep(10 * time.Millisecond)
	}
	if len(fds) > len(before) {
		t.Errorf("descriptors left after errors: %v; before: %v", fds, before)
	}
}

func fdsOf(t *testing.T, pid int) []string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		if os.Getuid() != 0 {
			return nil // demesne-init is not dumpable
		}
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		t.Error("demesne-init is dumpable")
	}
	var out []string
	for _, e := range entries {
		target, _ := os.Readlink(filepath.Join(dir, e.Name()))
		out = append(out, e.Name()+" "+target)
	}
	return out
}

func TestWhatACommandInherits(t *testing.T) {
	s := start(t, asNobody)
	s.setup(pid1api.Setup{Landlock: wide(), Scoped: true, Subreaper: true})
	// A second command runs beside it; its descriptors must not appear.
	other, err := s.begin(sh("sleep 60"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.out.Close()
	fds := strings.Fields(s.must(sh("exec ls /proc/self/fd")))
	if want := []string{"0", "1", "2", "3"}; !slices.Equal(fds, want) { // 3 is opened by ls
		t.Errorf("descriptors %v, want %v", fds, want)
	}
	status := s.must(args("cat", "/proc/self/status"))
	for _, want := range []string{"SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2",
		"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "CapInh:\t0000000000000000", "CapAmb:\t0000000000000000"} {
		if !strings.Contains(status, want) {
			t.Errorf("status without %q:\n%s", want, status)
		}
	}
	if got := s.must(sh("umask; readlink /proc/self/fd/0; ps -o pid=,pgid=,sid= -p $$ | tr -s ' '")); true {
		f := strings.Fields(got)
		if len(f) != 5 || f[0] != "0022" || f[1] != "/dev/null" || f[2] != f[3] || f[3] != f[4] {
			t.Errorf("umask, stdin, pid, group, session: %q", got)
		}
	}
}

func TestSignal(t *testing.T) {
	s := plain(t)
	child := func(p *process) int {
		var pid int
		if _, err := fmt.Fscan(p.out, &pid); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	for _, tt := range []struct {
		name      string
		script    string
		sig       syscall.Signal
		group     bool
		childDies bool
	}{
		{"leader only", "sleep 60 & echo $!; wait", unix.SIGKILL, false, false},
		{"group", "sleep 60 & echo $!; wait", unix.SIGTERM, true, true},
		{"stopped group", "sleep 60 & echo $!; kill -STOP $! $$", unix.SIGKILL, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := s.begin(sh(tt.script))
			if err != nil {
				t.Fatal(err)
			}
			defer p.out.Close()
			pid := child(p)
			if err := s.call(pid1api.OpSignal, pid1api.Signal{Exec: p.exec, Signal: int(tt.sig), Group: tt.group}, nil, nil); err != nil {
				t.Fatal(err)
			}
			if e := p.wait(); syscall.WaitStatus(e.Status).Signal() != tt.sig {
				t.Errorf("status %#x, want signal %d", e.Status, tt.sig)
			}
			if tt.childDies {
				eventually(t, "the child is gone", func() bool { return !alive(pid) })
			} else if !alive(pid) {
				t.Error("the child was signalled too")
			}
		})
	}
	var e *ipc.Error
	err := s.call(pid1api.OpSignal, pid1api.Signal{Exec: 1, Signal: 9}, nil, nil)
	if !errors.As(err, &e) || e.Code != ipc.CodeNoSuchCommand {
		t.Errorf("signal an ended exec: %v", err)
	}
}

// TestCommandsShareADomain: commands share one Landlock domain. They may signal each other, be signalled by PID
// 1, and connect through abstract sockets.
func TestCommandsShareADomain(t *testing.T) {
	s := plain(t)
	p, err := s.begin(sh("sleep 60"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.out.Close()
	s.must(sh(fmt.Sprintf("kill -TERM %d", p.pid)))
	if e := p.wait(); syscall.WaitStatus(e.Status).Signal() != unix.SIGTERM {
		t.Errorf("status %#x, want SIGTERM", e.Status)
	}
	// They may not signal processes outside the domain.
	if out, status := s.run(sh(fmt.Sprintf("kill -CONT %d", os.Getpid()))); status == 0 {
		t.Errorf("a command signalled the test: %q", out)
	}
	if s.facts.LandlockABI >= 6 && s.facts.LandlockABI < 8 {
		if out, status := s.run(sh(fmt.Sprintf("kill -CONT %d", s.cmd.Process.Pid))); status == 0 {
			t.Errorf("a command signalled PID 1: %q", out)
		}
	}
	name := fmt.Sprintf("@demesne-guest-test-%d", os.Getpid()) // of a namespace that other tests share
	server, err := s.begin(helper("abstract-server", name))
	if err != nil {
		t.Fatal(err)
	}
	defer server.out.Close()
	buf := make([]byte, 64)
	if n, _ := server.out.Read(buf); string(buf[:n]) != "ready\n" {
		t.Fatalf("server said %q", buf[:n])
	}
	if out := s.must(helper("abstract-client", name)); out != "reached" {
		t.Errorf("client said %q", out)
	}
	server.wait()
}

func abstractServer() int {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: os.Args[1]})
	}
	if err == nil {
		err = unix.Listen(fd, 1)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	if _, _, err := unix.Accept(fd); err != nil {
		return 1
	}
	return 0
}

func abstractClient() int {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: os.Args[1]})
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("reached")
	return 0
}

func TestManyExecs(t *testing.T) {
	s := plain(t)
	before := len(fdsOf(t, s.cmd.Process.Pid)) // with what the test's own process inherited
	const n = 1000
	for range n {
		s.next++
		g := args("true")
		g.Exec = s.next
		if err := s.call(pid1api.OpExec, g, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[uint64]bool{}
	for range n {
		select {
		case e := <-s.exited:
			if e.Status != 0 || seen[e.Exec] {
				t.Errorf("exit %+v, seen %v", e, seen[e.Exec])
			}
			seen[e.Exec] = true
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d ended", len(seen), n)
		}
	}
	// A command may end before the pipe is closed that reports errors of its execve.
	eventually(t, "no descriptors to be left", func() bool { return len(fdsOf(t, s.cmd.Process.Pid)) <= before+1 })
}

func TestZombiesAreReaped(t *testing.T) {
	s := plain(t)
	// Each sh leaves a child that ends later, as a child of PID 1.
	s.must(sh("for i in 1 2 3 4 5 6 7 8; do (sleep 0.05 & ); done"))
	pid := s.cmd.Process.Pid
	eventually(t, "no child is left", func() bool {
		left, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		for _, task := range tasks {
			b, _ := os.ReadFile(task)
			left = append(left, b...)
		}
		return err == nil && len(strings.TrimSpace(string(left))) == 0
	})
}

func TestEOFEndsEverything(t *testing.T) {
	for name, change := range users() {
		for _, scoped := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s scoped %v", name, scoped), func(t *testing.T) {
				s := start(t, change).setup(pid1api.Setup{Landlock: wide(), Scoped: scoped, Subreaper: true})
				p, err := s.begin(sh(`setsid sh -c 'trap "" TERM HUP; echo $$; (sleep 61 & echo $!); sleep 62' & sleep 63`))
				if err != nil {
					t.Fatal(err)
				}
				defer p.out.Close()
				var a, b int
				if _, err := fmt.Fscan(p.out, &a, &b); err != nil {
					t.Fatal(err)
				}
				s.peer.Close()
				s.cmd.Wait()
				for _, pid := range []int{p.pid, a, b} {
					if alive(pid) {
						t.Errorf("process %d is alive", pid)
					}
				}
			})
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 6000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("after a minute not yet: %s", what)
}

// TestExtraDescriptors gives a command descriptors beyond its stdio. The command has these and no others.
func TestExtraDescriptors(t *testing.T) {
	s := plain(t)
	var files [4]*os.File
	for i := range 2 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		files[2*i], files[2*i+1] = r, w
		defer r.Close()
		defer w.Close()
	}
	g := sh(`read -r line <&3; echo "got $line" >&4; ls /proc/self/fd | wc -l >&4`)
	g.Exec = 900
	var done pid1api.Executed
	if err := s.call(pid1api.OpExec, g, ipc.Files{"extra3": files[0], "extra4": files[3]}, &done); err != nil {
		t.Fatal(err)
	}
	files[3].Close()
	files[1].WriteString("a line\n")
	if got := readAll(files[2]); got != "got a line\n6\n" { // and the descriptor of ls
		t.Errorf("the command wrote %q", got)
	}
}
