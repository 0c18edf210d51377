package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner/doctor/diagnose"
	"demesne/runner/ipc"
	"demesne/runner/userns"
)

// built are the programs that Connect and Enter start, built once for all tests.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(built.dir)
	os.Exit(code)
}

// buildPrograms builds the programs, unless they exist.
func buildPrograms(t *testing.T) {
	t.Helper()
	if dir := os.Getenv("DEMESNE_BIN"); dir != "" {
		t.Setenv("DEMESNE_LIBEXEC", dir)
		return
	}
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "demesne-client-test-*"); built.err != nil {
			return
		}
		const build = `go build -o "$0/" ../../cmd/demesne-runner && CGO_ENABLED=0 go build -o "$0/" ../../cmd/demesne-init ../../cmd/demesne-proxy`
		if out, err := exec.Command("sh", "-c", build, built.dir).CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	t.Setenv("DEMESNE_LIBEXEC", built.dir)
}

// requireEnter skips the test where the machine forbids user namespaces, except under CI.
func requireEnter(t *testing.T, err error) {
	t.Helper()
	var e *ipc.Error
	if errors.As(err, &e) && e.Code == ipc.CodeRequirement && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// enterNew starts c in a user namespace of its own.
func enterNew(ctx context.Context, c *exec.Cmd) error {
	u, err := NewUserns()
	if err != nil {
		return err
	}
	return u.Enter(ctx, c, "")
}

func TestEnter(t *testing.T) {
	buildPrograms(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	c := exec.Command("sh", "-c", `
		id -u; id -g; cat /proc/self/uid_map; ls /sys/class/net >/dev/null; grep -c : /proc/net/dev
		env | grep -c DEMESNE_C; cat; echo "$GIVEN" >&3; pwd; echo told >&2
		mount -t tmpfs none /mnt && echo mounted; test -e /proc/self/fd/5 -o -e /proc/self/fd/6 || echo clean; exit 7`)
	c.Stdin, c.Stdout, c.Stderr, c.Dir = strings.NewReader("input\n"), &out, &errOut, "/usr"
	c.Env = append(os.Environ(), "GIVEN=given")
	c.ExtraFiles = []*os.File{w}
	requireEnter(t, enterNew(context.Background(), c))
	w.Close()
	var ended *exec.ExitError
	if err := c.Wait(); !errors.As(err, &ended) || ended.ExitCode() != 7 {
		t.Errorf("exit: %v", err)
	}
	lines := strings.Split(out.String(), "\n")
	if lines[0] != "0" || lines[1] != "0" {
		t.Errorf("ids %q, want 0", lines[:2])
	}
	if want := expectMap(t); !strings.HasPrefix(strings.Join(strings.Fields(lines[2]), " "), want) {
		t.Errorf("map %q, want %q", lines[2], want)
	}
	rest := strings.Join(lines[2:], "\n")
	if !strings.Contains(rest, "\n1\n0\ninput\n/usr\nmounted\nclean\n") {
		t.Errorf("output %q", rest)
	}
	if given, err := io.ReadAll(r); string(given) != "given\n" || errOut.String() != "told\n" {
		t.Errorf("descriptor 3 got %q (%v), stderr %q", given, err, errOut.String())
	}
}

// expectMap returns the first line of the map that a runner would have here.
func expectMap(t *testing.T) string {
	t.Helper()
	if realRoot() {
		return strconv.Itoa(0) + " " + strconv.Itoa(rootBase) + " " + strconv.Itoa(rangeSize)
	}
	return "0 " + strconv.Itoa(os.Geteuid()) + " 1"
}

// TestEnterNoNewPrivs expects a single id, except as real root.
func TestEnterNoNewPrivs(t *testing.T) {
	buildPrograms(t)
	done := make(chan error)
	var out []byte
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends and no goroutine inherits the setting
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			done <- err
			return
		}
		c := exec.Command("cat", "/proc/self/uid_map")
		var b bytes.Buffer
		c.Stdout = &b
		err := enterNew(context.Background(), c)
		if err == nil {
			err = c.Wait()
		}
		out = b.Bytes()
		done <- err
	}()
	requireEnter(t, <-done)
	if got := strings.Join(strings.Fields(string(out)), " "); got != expectMap(t) {
		t.Errorf("map %q, want %q alone", got, expectMap(t))
	}
}

func TestEnterErrors(t *testing.T) {
	buildPrograms(t)
	bad := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(bad, []byte("not a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{"/nonexistent": syscall.ENOENT, bad: syscall.ENOEXEC, "/etc/passwd": syscall.EACCES} {
		if err := enterNew(context.Background(), &exec.Cmd{Path: path}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c := exec.Command("sleep", "60")
	if err := enterNew(ctx, c); err == nil {
		c.Wait() // it was killed right after its start
	}
}

// helperVar makes the test below act as the caller that is killed.
const helperVar = "DEMESNE_TEST_ENTER"

func TestEnterDiesWithCaller(t *testing.T) {
	if os.Getenv(helperVar) != "" {
		c := exec.Command("sleep", "3600")
		if err := enterNew(context.Background(), c); err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("pid " + strconv.Itoa(c.Process.Pid) + "\n")
		c.Wait()
		return
	}
	buildPrograms(t)
	requireEnter(t, enterNew(context.Background(), &exec.Cmd{Path: "/bin/true"}))
	caller := exec.Command("/proc/self/exe", "-test.run=^TestEnterDiesWithCaller$")
	caller.Env = append(os.Environ(), helperVar+"=1")
	out, err := caller.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := caller.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 64)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(string(line[:n]), "pid ")))
	if err != nil {
		t.Fatal(err)
	}
	proc, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(proc)
	caller.Process.Kill()
	caller.Wait()
	gone := []unix.PollFd{{Fd: int32(proc), Events: unix.POLLIN}}
	if n, err := unix.Poll(gone, int((30 * time.Second).Milliseconds())); n != 1 {
		t.Errorf("it lives on: %v", err)
		unix.Kill(pid, unix.SIGKILL)
	}
}

func TestPrepareOwned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "trees")
	if realRoot() {
		for p := filepath.Dir(filepath.Dir(dir)); p != "/tmp" && p != "/"; p = filepath.Dir(p) {
			os.Chmod(p, 0o755)
		}
	}
	if err := prepareOwned(dir, realRoot()); err != nil {
		t.Fatal(err)
	}
	buildPrograms(t)
	c := exec.Command("mkdir", filepath.Join(dir, "tree"))
	requireEnter(t, enterNew(context.Background(), c))
	if err := c.Wait(); err != nil {
		t.Errorf("write to it: %v", err)
	}
	if realRoot() {
		parent := filepath.Join(t.TempDir(), "demesne")
		(&runDir{sandboxRoot: filepath.Join(parent, "sandboxes")}).makeSandboxRoot(userns.ModeMinimal)
		if st, err := os.Stat(parent); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("images of the sandboxes' ids lie below it: %v, %v", st.Mode(), err)
		}
		closed := filepath.Join(t.TempDir(), "closed")
		if err := os.Mkdir(closed, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := prepareOwned(filepath.Join(closed, "trees"), realRoot()); err == nil {
			t.Error("made where the sandboxes' ids cannot go")
		}
	}
}

func TestExplainRefused(t *testing.T) {
	f := diagnose.Facts{Profile: "docker-default (enforce)"}
	for step, want := range map[userns.Step]string{
		userns.StepPrivate: "the AppArmor profile docker-default forbids mounts",
		userns.StepSlaves:  "the AppArmor profile docker-default forbids mounts",
		userns.StepNested:  "the AppArmor profile docker-default does not allow user namespaces",
	} {
		if why, _ := explainRefused(&userns.Refused{Step: step, Errno: unix.EACCES}, f); !strings.HasPrefix(why, want) {
			t.Errorf("%q: %q", why, want)
		}
	}
}
