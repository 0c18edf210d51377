package pid1_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"

	"golang.org/x/sys/unix"
)

// initPath is demesne-init, built for the tests. It is the program itself instead of this test binary, because
// it works only without cgo.
var initPath string

// helperPath is a copy of this test binary that any user can execute. helpers are its modes, for use inside a
// sandbox or on the way into one.
var (
	helperPath string
	helpers    = map[string]func() int{
		"namespaces":      stageNamespaces,
		"abstract-server": abstractServer,
		"abstract-client": abstractClient,
		"terminal":        holdTerminal,
		"signal-all":      signalAll,
		"outside":         outside,
	}
)

func helper(name string, argv ...string) pid1api.Exec {
	g := args(append([]string{helperPath}, argv...)...)
	g.Env = append(g.Env, ipc.Bytes("GUEST_TEST_HELPER="+name))
	return g
}

func TestMain(m *testing.M) {
	if h, ok := helpers[os.Getenv("GUEST_TEST_HELPER")]; ok {
		os.Exit(h())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	// Other users execute files in this directory.
	dir, err := os.MkdirTemp("", "guest")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	helperPath = filepath.Join(dir, "helper")
	if err := copyFile(helperPath, "/proc/self/exe"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if bin := os.Getenv("DEMESNE_BIN"); bin != "" {
		initPath = filepath.Join(bin, "demesne-init")
	} else {
		initPath = filepath.Join(dir, "demesne-init")
		build := exec.Command("go", "build", "-o", initPath, "../../cmd/demesne-init")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build demesne-init: %v\n%s", err, out)
			return 1
		}
	}
	return m.Run()
}

func copyFile(to, from string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}

// sandbox is a demesne-init and the runner's end of its socket.
type sandbox struct {
	t      testing.TB
	cmd    *exec.Cmd
	peer   *ipc.Peer
	exited chan pid1api.Exited
	next   uint64
	facts  pid1api.Facts
}

// start starts demesne-init; change may modify the command first.
func start(t testing.TB, change ...func(*exec.Cmd)) *sandbox {
	t.Helper()
	ours, theirs, err := ipc.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	s := &sandbox{t: t, exited: make(chan pid1api.Exited, 4096)}
	s.cmd = exec.Command(initPath)
	s.cmd.Env = []string{"PATH=/usr/bin:/bin"}
	s.cmd.Stderr = os.Stderr
	s.cmd.ExtraFiles = []*os.File{theirs}
	for _, f := range change {
		f(s.cmd)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.peer = ipc.NewPeer(ipc.NewConn(ours), func(m *ipc.Message) {
		defer m.Close()
		var e pid1api.Exited
		if m.Op == pid1api.OpExited && m.Decode(&e) == nil {
			s.exited <- e
		}
	})
	go s.peer.Serve()
	t.Cleanup(func() {
		s.peer.Close()
		s.cmd.Process.Kill()
		s.cmd.Wait()
	})
	return s
}

// wide returns a Landlock policy under which ordinary commands work.
func wide() []pid1api.PathRule {
	return []pid1api.PathRule{
		{Path: ipc.Bytes("/"), Access: pid1api.AccessReadExec},
		{Path: ipc.Bytes("/tmp"), Access: pid1api.AccessReadWrite},
		{Path: ipc.Bytes("/dev"), Access: pid1api.AccessDevice},
		{Path: ipc.Bytes("/not/there"), Access: pid1api.AccessReadWrite},
	}
}

func (s *sandbox) call(op ipc.Op, body any, files ipc.Files, reply any) error {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := s.peer.Call(ctx, op, body, files, reply)
	if ctx.Err() != nil {
		s.t.Fatalf("%s: no reply", op)
	}
	return err
}

func (s *sandbox) setup(g pid1api.Setup) *sandbox {
	s.t.Helper()
	if err := s.call(pid1api.OpSetup, g, nil, &s.facts); err != nil {
		s.t.Fatal(err)
	}
	return s
}

// process is a command in the sandbox.
type process struct {
	s      *sandbox
	exec   uint64
	pid    int
	out    *os.File
	before []pid1api.Exited // exits of other commands, received while waiting
}

// begin starts a command whose stdout and stderr share a pipe.
func (s *sandbox) begin(g pid1api.Exec) (*process, error) {
	s.t.Helper()
	s.next++
	g.Exec = s.next
	r, w, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	defer w.Close()
	var done pid1api.Executed
	if err := s.call(pid1api.OpExec, g, ipc.Files{"stdout": w, "stderr": w}, &done); err != nil {
		r.Close()
		return nil, err
	}
	return &process{s: s, exec: g.Exec, pid: done.PID, out: r}, nil
}

// args returns a request for a command line.
func args(argv ...string) pid1api.Exec {
	return pid1api.Exec{Argv: ipc.ByteStrings(argv), Env: ipc.ByteStrings([]string{"PATH=/usr/bin:/bin"}), Dir: ipc.Bytes("/")}
}

func sh(script string) pid1api.Exec { return args("sh", "-c", script) }

// wait returns the exit report of the command.
func (p *process) wait() pid1api.Exited {
	p.s.t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case e := <-p.s.exited:
			if e.Exec == p.exec {
				for _, b := range p.before {
					p.s.exited <- b
				}
				return e
			}
			p.before = append(p.before, e)
		case <-timeout:
			p.s.t.Fatalf("exec %d did not end", p.exec)
		}
	}
}

// run runs a command to its end and returns its output and status.
func (s *sandbox) run(g pid1api.Exec) (string, syscall.WaitStatus) {
	s.t.Helper()
	p, err := s.begin(g)
	if err != nil {
		s.t.Fatal(err)
	}
	defer p.out.Close()
	out := readAll(p.out)
	return out, syscall.WaitStatus(p.wait().Status)
}

// must runs a command that must succeed, and returns its output.
func (s *sandbox) must(g pid1api.Exec) string {
	s.t.Helper()
	out, status := s.run(g)
	if status != 0 {
		s.t.Fatalf("%q: status %#x, output %q", g.Argv, status, out)
	}
	return strings.TrimSpace(out)
}

// readAll reads to the end, which a terminal reports as EIO.
func readAll(f *os.File) string {
	var b strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := f.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			return b.String()
		}
	}
}

// asNobody makes demesne-init run as an ordinary user, if the test runs as root.
func asNobody(c *exec.Cmd) {
	if os.Getuid() == 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
}

// users lists the ways to start demesne-init without namespaces.
func users() map[string]func(*exec.Cmd) {
	u := map[string]func(*exec.Cmd){"user": asNobody}
	if os.Getuid() == 0 {
		u["root"] = func(*exec.Cmd) {}
	}
	return u
}

func alive(pid int) bool { return unix.Kill(pid, 0) == nil }
