package pid1_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"

	"golang.org/x/sys/unix"
)

const capSetfcap = 31

// inNamespaces starts demesne-init as PID 1 of new user, pid, mount, ipc and net namespaces, with the
// capabilities libcontainer leaves to it. As root it maps a range of ids, as the runner does; otherwise it maps
// one.
func inNamespaces(keep ...int) func(*exec.Cmd) {
	return func(c *exec.Cmd) {
		c.Args = []string{helperPath, initPath}
		for _, k := range keep {
			c.Args = append(c.Args, strconv.Itoa(k))
		}
		c.Path = helperPath
		c.Env = append(c.Env, "GUEST_TEST_HELPER=namespaces")
		a := &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		if os.Getuid() == 0 {
			ids := []syscall.SysProcIDMap{{HostID: 100000, Size: 65536}}
			a.UidMappings, a.GidMappings, a.GidMappingsEnableSetgroups = ids, ids, true
			a.Credential = &syscall.Credential{}
		}
		c.SysProcAttr = a
	}
}

// stageNamespaces runs inside the namespaces. It makes the runner's mounts and becomes PID 1.
func stageNamespaces() int {
	for _, m := range []struct {
		what, where, kind string
		flags             uintptr
		data              string
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE, ""},
		{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"},
		{"sysfs", "/sys", "sysfs", unix.MS_RDONLY, ""},
	} {
		if err := unix.Mount(m.what, m.where, m.kind, m.flags, m.data); err != nil {
			fmt.Fprintf(os.Stderr, "mount %s: %v\n", m.where, err)
		}
	}
	keep := []int{unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_KILL, unix.CAP_SETPCAP}
	for _, a := range os.Args[2:] {
		n, _ := strconv.Atoi(a)
		keep = append(keep, n)
	}
	runtime.LockOSThread() // the bounding set is this thread's
	for c := range 64 {
		if !slices.Contains(keep, c) {
			unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		}
	}
	os.Unsetenv("GUEST_TEST_HELPER")
	fmt.Fprintln(os.Stderr, unix.Exec(os.Args[1], os.Args[1:2], os.Environ()))
	return 1
}

func namespaced(t *testing.T) *sandbox {
	t.Helper()
	return start(t, inNamespaces()).setup(pid1api.Setup{
		Landlock: wide(), Scoped: true, Seccomp: pid1api.SeccompOptions{NoSUID: true},
	})
}

func TestFacts(t *testing.T) {
	f := namespaced(t).facts
	if len(f.Problems) > 0 {
		t.Errorf("problems %q", f.Problems)
	}
	if !f.LandlockFS || f.LandlockABI >= 6 && !f.LandlockScope || len(f.Seccomp) != 64 || f.SeccompLen == 0 || !f.NoNewPrivs ||
		f.CapBounding != 0 || f.CapEffective != 0 || !f.ProcMasked || !f.SysReadOnly {
		t.Errorf("facts %+v", f)
	}
	t.Logf("%+v", f)
}

// TestFactsWithout: a restriction that was not requested is not claimed.
func TestFactsWithout(t *testing.T) {
	f := start(t, inNamespaces()).setup(pid1api.Setup{}).facts
	if f.LandlockFS || f.LandlockScope || len(f.Problems) > 0 {
		t.Errorf("facts %+v", f)
	}
}

// TestProblems: a requested restriction that cannot be applied is reported.
func TestProblems(t *testing.T) {
	s := start(t, inNamespaces()).setup(pid1api.Setup{
		Landlock: []pid1api.PathRule{{Path: ipc.Bytes("/"), Access: pid1api.AccessReadExec}},
		KeepCaps: []uint{unix.CAP_SYS_TIME},
	})
	if p := strings.Join(s.facts.Problems, "\n"); !strings.Contains(p, "landlock") || !strings.Contains(p, "capabilities") {
		t.Errorf("problems %q", s.facts.Problems)
	}
	if err := s.call(pid1api.OpSetup, pid1api.Setup{}, nil, nil); err == nil {
		t.Error("a second setup was accepted")
	}
}

func TestNoCapabilities(t *testing.T) {
	s := namespaced(t)
	for _, uid := range uids() {
		g := args("cat", "/proc/self/status")
		g.UID, g.GID, g.SetIDs = uid, uid, os.Getuid() == 0
		status := s.must(g)
		for _, want := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
			if !strings.Contains(status, want+":\t0000000000000000") {
				t.Errorf("uid %d: status without %q:\n%s", uid, want, status)
			}
		}
		if want := fmt.Sprintf("Uid:\t%d\t%d\t%d\t%d", uid, uid, uid, uid); !strings.Contains(status, want) {
			t.Errorf("status without %q:\n%s", want, status)
		}
	}
}

// uids returns the users that commands can run as.
func uids() []uint32 {
	if os.Getuid() == 0 {
		return []uint32{0, 1000}
	}
	return []uint32{0}
}

func TestKeepCaps(t *testing.T) {
	s := start(t, inNamespaces(capSetfcap)).setup(pid1api.Setup{
		Scoped: true, KeepCaps: []uint{capSetfcap}, Seccomp: pid1api.SeccompOptions{Nesting: true},
	})
	if len(s.facts.Problems) > 0 || s.facts.CapBounding != 1<<capSetfcap || s.facts.CapEffective != 1<<capSetfcap {
		t.Fatalf("facts %+v", s.facts)
	}
	for _, uid := range uids() {
		g := args("cat", "/proc/self/status")
		g.UID, g.GID, g.SetIDs = uid, uid, os.Getuid() == 0
		status := s.must(g)
		for _, want := range []string{"CapPrm", "CapEff", "CapBnd"} {
			if !strings.Contains(status, want+":\t0000000080000000") {
				t.Errorf("uid %d: status without %q:\n%s", uid, want, status)
			}
		}
	}
	if out, status := s.run(sh("unshare -Urm sh -c 'mount -t tmpfs none /mnt && id -u'")); status != 0 || out != "0\n" {
		t.Errorf("nested namespaces: status %#x, output %q", status, out)
	}
}

// TestRootCaps: only uid 0 of an image gets RootCaps, and PID 1 remains out of its reach.
func TestRootCaps(t *testing.T) {
	caps := []int{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID}
	setup := pid1api.Setup{Landlock: wide(), Scoped: true, Seccomp: pid1api.SeccompOptions{NoSUID: true}}
	var all uint64
	for _, c := range caps {
		setup.RootCaps = append(setup.RootCaps, uint(c))
		all |= 1 << c
	}
	s := start(t, inNamespaces(caps...)).setup(setup)
	if len(s.facts.Problems) > 0 || s.facts.CapBounding != all || s.facts.CapEffective != all {
		t.Fatalf("facts %+v", s.facts)
	}
	for _, uid := range uids() {
		g := args("cat", "/proc/self/status")
		g.UID, g.GID, g.SetIDs = uid, uid, os.Getuid() == 0
		want := uint64(0)
		if uid == 0 {
			want = all
		}
		if status := s.must(g); !strings.Contains(status, fmt.Sprintf("CapEff:\t%016x", want)) {
			t.Errorf("uid %d: status without %#x:\n%s", uid, want, status)
		}
	}
	for _, path := range []string{"environ", "mem", "fd", "root", "maps", "cwd"} {
		if out, status := s.run(sh("ls -l /proc/1/" + path + "/ 2>&1 || cat /proc/1/" + path)); status == 0 {
			t.Errorf("/proc/1/%s: %q", path, out)
		}
	}
	for _, script := range []string{"kill -9 1; kill -STOP 1; ps -o stat= -p 1 | grep -q T", "mknod /tmp/n$$ c 1 3", "unshare -U true", "mount -t tmpfs none /mnt"} {
		if out, status := s.run(sh("(" + script + ") 2>&1")); status == 0 {
			t.Errorf("%s: worked, output %q", script, out)
		}
	}
}

func TestLandlockAndSeccompHold(t *testing.T) {
	s := namespaced(t)
	for _, script := range []string{
		"echo x > /etc/demesne-test", "mkdir /var/tmp/demesne-test", "unshare -U true", "mount -t tmpfs none /mnt",
		"touch /tmp/s$$; chmod u+s /tmp/s$$", "mknod /tmp/n$$ c 1 3", "kill -9 1",
	} {
		if out, status := s.run(sh(script + " 2>&1")); status == 0 {
			t.Errorf("%s: worked, output %q", script, out)
		}
	}
	if got := s.must(sh("f=$(mktemp /tmp/demesne-guest-XXXXXX) && echo yes > $f && cat $f && rm $f")); got != "yes" {
		t.Errorf("write below /tmp: %q", got)
	}
}

// TestDirectoryOutside: a command in a changed root cannot use a descriptor of the directory outside that it inherits, which
// the runner gives to none. The same attempts succeed for a command without the restrictions (F44).
func TestDirectoryOutside(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to change the root")
	}
	dir := t.TempDir()
	tree := dir + "/tree"
	if err := errors.Join(os.Mkdir(tree, 0o755), copyFile(tree+"/helper", helperPath), os.WriteFile(dir+"/secret", []byte("secret"), 0o644)); err != nil {
		t.Fatal(err)
	}
	libraries, _ := exec.Command("ldd", helperPath).Output() // none if it is static
	for _, path := range strings.Fields(string(libraries)) {
		if filepath.IsAbs(path) {
			if err := errors.Join(os.MkdirAll(tree+filepath.Dir(path), 0o755), copyFile(tree+path, path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	above, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer above.Close()
	try := func(setup pid1api.Setup) string {
		os.RemoveAll(dir + "/made")
		s := start(t)
		s.setup(setup)
		out, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		g := args("/helper")
		g.Exec, g.Env = 1, ipc.ByteStrings([]string{"GUEST_TEST_HELPER=outside"})
		err = s.call(pid1api.OpExec, g, ipc.Files{"stdin": above, "stdout": w, "stderr": w}, &pid1api.Executed{})
		if w.Close(); err != nil {
			t.Fatal(err)
		}
		return readAll(out)
	}
	root := pid1api.Setup{Root: ipc.Bytes(tree), Subreaper: true}
	if got := try(root); strings.Count(got, ": done\n") < 7 {
		t.Errorf("without restrictions:\n%s", got)
	}
	root.Landlock = []pid1api.PathRule{{Path: ipc.Bytes("/"), Access: pid1api.AccessReadWrite}}
	root.Seccomp = pid1api.SeccompOptions{NoSocket: true, FakeRoot: true}
	if got := try(root); strings.Contains(got, ": done\n") || strings.Count(got, ": permission denied")+strings.Count(got, ": invalid cross-device link") < 7 {
		t.Errorf("restricted:\n%s", got)
	}
	if _, err := os.Lstat(dir + "/made"); err == nil {
		t.Error("it made a directory outside")
	}
}

// outside uses the directory that is its stdin.
func outside() int {
	open := func(at int, path string) error {
		fd, err := unix.Openat(at, path, unix.O_RDONLY, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
	for _, attempt := range []struct {
		name string
		do   func() error
	}{
		{"read a file in it", func() error { return open(0, "secret") }},
		{"list it anew", func() error { return open(0, ".") }},
		{"list the directory above", func() error { return open(0, "..") }},
		{"make a directory in it", func() error { return unix.Mkdirat(0, "made", 0o755) }},
		{"move a file of it", func() error {
			return errors.Join(unix.Renameat(0, "secret", 0, "moved"), unix.Renameat(0, "moved", 0, "secret"))
		}},
		{"link a file of it", func() error {
			defer unix.Unlinkat(unix.AT_FDCWD, "/linked", 0)
			return unix.Linkat(0, "secret", unix.AT_FDCWD, "/linked", 0)
		}},
		{"work in it", func() error { return errors.Join(unix.Fchdir(0), open(unix.AT_FDCWD, "secret")) }},
	} {
		err := attempt.do()
		if err == nil {
			err = errors.New("done")
		}
		fmt.Println(attempt.name + ": " + strings.ReplaceAll(err.Error(), "\n", ", "))
	}
	return 0
}

// TestSignalsToPID1: PID 1 survives every signal that a command can send, even without Landlock's scope.
func TestSignalsToPID1(t *testing.T) {
	s := start(t, inNamespaces()).setup(pid1api.Setup{})
	g := helper("signal-all")
	for range 10 {
		s.must(g)
	}
	if got := s.must(args("echo", "alive")); got != "alive" {
		t.Errorf("after the signals: %q", got)
	}
}

func signalAll() int {
	for range 20 {
		for sig := syscall.Signal(1); sig <= 64; sig++ {
			unix.Kill(1, sig)
		}
	}
	time.Sleep(time.Millisecond)
	return 0
}

func TestPID1IsOutOfReach(t *testing.T) {
	s := namespaced(t)
	for _, path := range []string{"environ", "mem", "fd", "root", "maps", "cwd"} {
		if out, status := s.run(sh("ls -l /proc/1/" + path + "/ 2>&1 || cat /proc/1/" + path)); status == 0 {
			t.Errorf("/proc/1/%s: %q", path, out)
		}
	}
}

func TestEOFEndsTheNamespace(t *testing.T) {
	s := namespaced(t)
	p, err := s.begin(sh("setsid sleep 61 & sleep 62 & echo ready; sleep 63"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.out.Close()
	buf := make([]byte, 16)
	p.out.Read(buf)
	s.peer.Close()
	done := make(chan struct{})
	go func() { readAll(p.out); close(done) }() // EOF when the last process has exited
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("a process holds stdout after EOF on the socket")
	}
}

func TestTerminal(t *testing.T) {
	s := namespaced(t)
	for _, uid := range uids() {
		holder, err := s.begin(helper("terminal", strconv.Itoa(int(uid))))
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if _, err := fmt.Fscan(holder.out, &n); err != nil {
			t.Fatal(err)
		}
		g := sh("tty; stty size; echo tty > /dev/tty; exec sh -c 'kill -INT $$; sleep 5'")
		g.TTY = &n
		g.UID, g.GID, g.SetIDs = uid, uid, os.Getuid() == 0 && uid != 0
		if g.SetIDs {
			// The runner would hand the terminal to this user; this test cannot.
			holder.out.Close()
			if _, err := s.begin(g); err == nil {
				t.Error("opened a terminal of another user")
			}
			continue
		}
		p, err := s.begin(g)
		if err != nil {
			t.Fatal(err)
		}
		if e := p.wait(); syscall.WaitStatus(e.Status).Signal() != unix.SIGINT {
			t.Errorf("status %#x", e.Status)
		}
		out := readAll(holder.out)
		if want := fmt.Sprintf("/dev/pts/%d\r\n24 80\r\ntty\r\n", n); out != want {
			t.Errorf("output %q, want %q", out, want)
		}
		holder.out.Close()
		p.out.Close()
	}
}

// holdTerminal opens a terminal, prints its number and copies its output.
func holdTerminal() int {
	fd, err := unix.Open("/dev/pts/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Printf("%d ", n)
	buf := make([]byte, 4096)
	for {
		n, err := unix.Read(fd, buf)
		if err != nil {
			return 0
		}
		os.Stdout.Write(buf[:n])
	}
}

func TestRlimits(t *testing.T) {
	s := namespaced(t)
	g := sh("ulimit -n; ulimit -Hn; ulimit -c 0; ulimit -c unlimited; grep core /proc/self/limits | tr -s ' '")
	g.Rlimits = []pid1api.Rlimit{{Resource: unix.RLIMIT_NOFILE, Value: 200}}
	if got := s.must(g); strings.TrimSpace(got) != "200\n200\nMax core file size 1 1 bytes" {
		t.Errorf("limits %q", got)
	}
	g.Rlimits = []pid1api.Rlimit{{Resource: unix.RLIMIT_NOFILE, Value: 8}}
	if _, err := s.begin(g); err == nil {
		t.Error("a limit below what PID 1 needs was taken")
	}
}

// TestForkBomb: PID 1 survives a fork bomb at its limit and can end it.
func TestForkBomb(t *testing.T) {
	s := namespaced(t)
	g := sh("b() { b | b & }; b & exec sleep 60") // exec, because a fork may fail by then
	g.Rlimits = []pid1api.Rlimit{{Resource: unix.RLIMIT_NPROC, Value: 100}}
	bomb, err := s.begin(g)
	if err != nil {
		t.Fatal(err)
	}
	defer bomb.out.Close()
	go readAll(bomb.out)
	for range 50 {
		p, err := s.begin(args("true")) // usually refused
		if err == nil {
			p.out.Close()
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := s.call(pid1api.OpSignal, pid1api.Signal{Exec: bomb.exec, Signal: 9, Group: true}, nil, nil); err != nil {
		t.Fatal(err)
	}
	bomb.wait()
	eventually(t, "commands run again", func() bool {
		p, err := s.begin(args("true"))
		if err != nil {
			return false
		}
		p.out.Close()
		return p.wait().Status == 0
	})
}

// TestKillAll: PID 1 kills everything that commands left, also a fork bomb, and starts commands afterwards.
func TestKillAll(t *testing.T) {
	s := namespaced(t)
	for _, script := range []string{
		"true",
		"setsid sleep 61 & (sleep 62 & kill -STOP $!) ; setsid sh -c 'sleep 63 & sleep 64' & echo left",
		"b() { b | b & }; b; sleep 0.1",
	} {
		g := sh(script)
		g.Rlimits = []pid1api.Rlimit{{Resource: unix.RLIMIT_NPROC, Value: 100}}
		p, err := s.begin(g)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { readAll(p.out); close(ended) }() // at the end of the last process that holds it
		p.wait()
		if err := s.call(pid1api.OpSignal, pid1api.Signal{All: true}, nil, nil); err != nil {
			t.Fatal(err)
		}
		<-ended
		p.out.Close()
		if got := s.must(sh("cat /proc/[0-9]*/comm | sort | tr '\\n' ' '")); strings.Contains(got, "sleep") {
			t.Errorf("%s: left: %s", script, got)
		}
	}
}
