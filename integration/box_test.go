package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"demesne/integration/fixture"
)

// canary is a value that no sandbox may see.
const canary = "canary-6f1d2c"

// box is the environment of one test, with directories of its own. At the end of the test it checks that no
// process or file remains.
type box struct {
	testing.TB
	dir, home, run, out string
	store               string   // image store; tests that need it create it
	uid                 int      // user id to run programs as; -1: the current user
	under               []string // program and arguments that start demesne, see withoutNamespaces
	inside              []string // program and arguments that start every program
	extra               []string
	before              around // the machine's state before the test
}

// hung is after how long a test hangs, on the slowest of machines. Images of recipes are downloads of gigabytes.
const hung = 30 * time.Minute

// patience bounds the wait for one event, on a slow and busy machine too.
const patience = 5 * time.Minute

func newBox(t testing.TB) *box {
	t.Helper()
	// The path must be short, because the path of a Unix socket has at most 108 bytes. It must be searchable,
	// because real root's runner does not run as root.
	dir, err := os.MkdirTemp("", "dm")
	if err != nil {
		t.Fatal(err)
	}
	b := &box{TB: t, dir: dir, home: dir + "/h", run: dir + "/r", out: dir + "/h/.demesne/out", store: dir + "/i", uid: -1}
	os.Chmod(dir, 0o755)
	for _, d := range []string{b.home, b.run, b.dir + "/k"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.before = lookAround()
	watch := time.AfterFunc(hung, func() {
		debug.SetTraceback("all")
		panic(t.Name() + " hangs")
	})
	t.Cleanup(func() {
		t.Helper()
		watch.Stop()
		b.checkLeaks()
		// Only demesne can remove files owned by subordinate ids.
		if len(names(b.store+"/trees")) > 0 {
			b.demesne("gc", "--all")
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove %s: %v", dir, err)
		}
	})
	return b
}

// as makes b's programs run as uid, which has no passwd entry and no subordinate ids.
func (b *box) as(uid int) *box {
	b.Helper()
	b.uid = uid
	for _, d := range []string{b.home, b.run, b.dir + "/k"} {
		if err := os.Chown(d, uid, uid); err != nil {
			b.Fatal(err)
		}
	}
	return b
}

// result holds the exit code and output of a program.
type result struct {
	code           int
	stdout, stderr string
}

func (b *box) environ() []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + b.home, "XDG_RUNTIME_DIR=" + b.run, "LANG=C.UTF-8", "TERM=xterm",
		"DEMESNE_IMAGE_STORE=" + b.store, "DEMESNE_SANDBOX_ROOT=" + b.dir + "/k",
		"DEMESNE_ALLOWED_PATHS=" + b.dir, // MCP's default, the working directory, contains the home here, so it allows nothing
		"DEMESNE_TEST_SECRET=" + canary, "AWS_SECRET_ACCESS_KEY=" + canary, "LD_LIBRARY_PATH=/" + canary,
		"SSH_AUTH_SOCK=/" + canary, "DOCKER_HOST=unix:///" + canary, "HISTFILE=" + b.dir + "/" + canary, // a test's shell may write its history there
		"GODEBUG=", "CI=" + os.Getenv("CI"), "DEMESNE_LINGER=0", // TestLinger and TestLeftovers set other values
	}, b.extra...)
}

// command returns a command for one of demesne's programs, or for an absolute path, without starting it. It may
// run for five minutes: syncfs(2) flushes a layer, and all other dirty data of the file system, before the layer
// gets its name.
func (b *box) command(name string, args ...string) *exec.Cmd {
	b.Helper()
	if !strings.Contains(name, "/") {
		name = filepath.Join(bin, name)
		if len(b.under) > 0 {
			name, args = b.under[0], slices.Concat(b.under[1:], []string{name}, args)
		}
	}
	if len(b.inside) > 0 {
		name, args = b.inside[0], slices.Concat(b.inside[1:], []string{name}, args)
	}
	limit := 5 * time.Minute
	if recipes() {
		limit = 30 * time.Minute // for images of gigabytes
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	b.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Dir = b.environ(), b.dir
	cmd.WaitDelay = time.Minute
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if b.uid >= 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(b.uid), Gid: uint32(b.uid)}
	}
	return cmd
}

// demesne runs the CLI to its end.
func (b *box) demesne(args ...string) result {
	b.Helper()
	return b.finish(b.command("demesne", args...))
}

// finish runs cmd to its end.
func (b *box) finish(cmd *exec.Cmd) result {
	b.Helper()
	var out, errs bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &errs
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		b.Fatalf("%q: %v\nstderr: %s", cmd.Args, err, errs.String())
	}
	code := cmd.ProcessState.ExitCode()
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	return result{code, out.String(), errs.String()}
}

// sh runs shell text in a one-shot sandbox and returns its stdout; it must succeed.
func (b *box) sh(script string, flags ...string) string {
	b.Helper()
	r := b.demesne(append(append([]string{"run"}, flags...), "--", "sh", "-c", script)...)
	if r.code != 0 {
		b.Fatalf("sh -c %q: exit %d\nstdout: %s\nstderr: %s", script, r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// report is the --json result, as a client in another language would read it.
type report struct {
	Sandbox  string  `json:"sandbox"`
	Stdout   string  `json:"stdout"`
	Stderr   string  `json:"stderr"`
	ExitCode int     `json:"exit_code"`
	Signal   int     `json:"signal"`
	Reason   string  `json:"reason"`
	Detail   string  `json:"detail"`
	Out      string  `json:"output_dir"`
	Seconds  float64 `json:"seconds"`
	Receipt  struct {
		Version int     `json:"version"`
		Level   string  `json:"level"`
		Kernel  string  `json:"kernel"`
		Layers  []layer `json:"layers"`
		UIDMap  []struct {
			Inside, Host, Size uint32
		} `json:"uid_map"`
		Landlock int     `json:"landlock_abi"`
		Seccomp  string  `json:"seccomp_sha256"`
		Limits   []limit `json:"limits"`
		Network  string  `json:"network"`
		Image    string  `json:"image_digest"`
	} `json:"receipt"`
	Trace []struct {
		Name string
		MS   float64
	} `json:"trace"`
}

type layer struct{ Name, Status, Detail, Why, Fix string }

type limit struct{ Name, Value, Mechanism, Status, Why, Fix string }

// report runs a command with --json and parses the result.
func (b *box) report(flags []string, argv ...string) (report, result) {
	b.Helper()
	r := b.demesne(append(append(append([]string{"run", "--json"}, flags...), "--"), argv...)...)
	return b.parse(r), r
}

func (b *box) parse(r result) (p report) {
	b.Helper()
	if err := json.Unmarshal([]byte(r.stdout), &p); err != nil {
		b.Fatalf("--json: %v\nexit %d\nstdout: %s\nstderr: %s", err, r.code, r.stdout, r.stderr)
	}
	return p
}

// file writes a file below the box's directory and returns its path.
func (b *box) file(name, text string, mode os.FileMode) string {
	b.Helper()
	p := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), mode); err != nil {
		b.Fatal(err)
	}
	os.Chmod(p, mode)
	return p
}

// mkdir creates a directory below the box's directory that the box's user may write to.
func (b *box) mkdir(name string) string {
	b.Helper()
	p := filepath.Join(b.dir, name)
	if err := os.MkdirAll(p, 0o755); err != nil {
		b.Fatal(err)
	}
	if b.uid >= 0 {
		os.Chown(p, b.uid, b.uid)
	}
	return p
}

// need skips the test if ok is false, or fails it under CI.
func need(t testing.TB, ok bool, what string) {
	t.Helper()
	switch {
	case ok:
	case os.Getenv("CI") != "":
		t.Fatalf("needs %s, and CI must have it", what)
	default:
		t.Skipf("needs %s", what)
	}
}

// program returns the path of a host program, searching /usr/sbin too.
func program(t testing.TB, name string) string {
	t.Helper()
	for _, d := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin") {
		if p := filepath.Join(d, name); syscall.Access(p, 1) == nil {
			return p
		}
	}
	need(t, false, name)
	return ""
}

// eventually polls cond until it is true. After patience, far longer than it should take, it fails the test.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	if fixture.Poll(patience, cond) {
		return
	}
	t.Fatalf("waited %v for %s", patience, what)
}

// nextSecond waits until the clock shows another second: times in an image are whole seconds.
func nextSecond() { time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) }
