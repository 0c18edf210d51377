package kernels_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"demesne/kernels"
	"demesne/kernels/driver"
	"demesne/runner"
	"demesne/runner/files"
)

// local executes kernels without a sandbox, to test the protocol alone.
type local struct{ t *testing.T }

type localProcess struct{ cmd *exec.Cmd }

func (l local) Exec(ctx context.Context, c runner.Command) (kernels.Process, error) {
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = c.Stdout, c.Stderr, c.Extra
	if c.Stdin != nil {
		cmd.Stdin = c.Stdin
	}
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &localProcess{cmd}, nil
}

func (l local) Dial(ctx context.Context, port uint16) (io.ReadWriteCloser, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
			c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(int(port)))
			if err != nil {
				theirs.SetReadDeadline(time.Now().Add(time.Microsecond))
				if _, err := theirs.Read(nil); errors.Is(err, io.EOF) {
					return
				}
				theirs.SetReadDeadline(time.Time{})
				continue
			}
			go func() {
				io.Copy(c, theirs)
				c.Close()
			}()
			io.Copy(theirs, c)
			return
		}
	}()
	return ours, nil
}

func (l local) Files(ctx context.Context, r files.Request) (*files.Answer, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	files.Serve(bytes.NewReader(raw), &out)
	return files.ReadAnswer(&out)
}

func (p *localProcess) Signal(s syscall.Signal) error { return syscall.Kill(-p.cmd.Process.Pid, s) }

func (p *localProcess) Wait(context.Context) (*runner.Result, error) {
	p.cmd.Wait()
	return &runner.Result{ExitCode: p.cmd.ProcessState.ExitCode(), Reason: runner.Exited}, nil
}

func startPython(t *testing.T) *kernels.Running {
	t.Helper()
	return startDriver(t, "python")
}

func startDriver(t *testing.T, language string) *kernels.Running {
	t.Helper()
	argv := driver.Argv(language)
	if _, err := exec.LookPath(argv[0]); err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	k, err := kernels.StartDriver(t.Context(), local{t}, runner.Command{Argv: argv})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Kill)
	return k
}

// told describes a result for comparison.
type told struct{ out, errs, value, error string }

func tell(r *kernels.Result) (s told) {
	s.out, s.errs = string(r.Stdout.End(1<<20)), string(r.Stderr.End(1<<20))
	s.value, _ = r.Value.Text("text/plain")
	if r.Error != nil {
		s.error = r.Error.Type + ": " + r.Error.Message
	}
	return s
}

func execute(t *testing.T, k *kernels.Running, code string) *kernels.Result {
	t.Helper()
	r, err := k.Execute(t.Context(), kernels.Execution{Code: code, Timeout: 5 * time.Minute})
	if err != nil {
		t.Fatalf("%s: %v", code, err)
	}
	return r
}

func TestPythonDriver(t *testing.T) {
	k := startPython(t)
	for _, test := range []struct{ code, out, errs, value, error string }{
		{code: "x = 20"},
		{code: "x + 1", value: "21"},
		{code: "x + 1;"},
		{code: "import os, sys\nprint('a')\nos.system('echo b')\nprint('c'); print('d', file=sys.stderr)", out: "a\nb\nc\n", errs: "d\n"},
		{code: "import asyncio\nawait asyncio.sleep(0)\nawait asyncio.sleep(0, 'slept')", value: "'slept'"},
		{code: "def f():\n    return 1 / 0\nf()", error: "ZeroDivisionError: division by zero"},
		{code: "x +", error: "SyntaxError: invalid syntax (<cell 7>, line 1)"},
		{code: "raise SystemExit(3)", error: "SystemExit: 3"},
		{code: "input()", error: "RuntimeError: input() is not available here: no one is there to answer. Put the value into the code."},
		{code: "x", value: "20"},
	} {
		r := execute(t, k, test.code)
		if got, want := tell(r), (told{test.out, test.errs, test.value, test.error}); got != want {
			t.Errorf("%s:\n got %q\nwant %q", test.code, got, want)
		}
	}
}

// timedOut executes code that prints something and does not end, until a timeout. It does so again with more time if the code
// had printed nothing: on a slow machine it begins late.
func timedOut(t *testing.T, k *kernels.Running, code string) *kernels.Result {
	t.Helper()
	t.Cleanup(kernels.SetInterruptGrace(5 * time.Minute)) // it checks that code ends, on a slow machine too
	for limit := 200 * time.Millisecond; ; limit *= 5 {
		r, err := k.Execute(t.Context(), kernels.Execution{Code: code, Timeout: limit})
		if err != nil || !r.TimedOut || r.Error == nil {
			t.Fatalf("%s: %+v, %v", code, r, err)
		}
		if r.Stdout.Bytes+r.Stderr.Bytes > 0 || limit > time.Minute {
			return r
		}
	}
}

func TestTimeoutKeepsState(t *testing.T) {
	k := startPython(t)
	execute(t, k, "x = 1")
	if r := timedOut(t, k, "import time\nx = 2\nprint('up')\nwhile True: time.sleep(1)"); r.Error.Type != "KeyboardInterrupt" {
		t.Errorf("%+v", r)
	}
	if v, _ := execute(t, k, "x").Value.Text("text/plain"); v != "2" {
		t.Errorf("after a timeout x is %q", v)
	}
}

func TestKernelDies(t *testing.T) {
	k := startPython(t)
	r, err := k.Execute(t.Context(), kernels.Execution{Code: "import os\nprint('last')\nos._exit(7)"})
	if !errors.Is(err, kernels.ErrDead) || r == nil {
		t.Fatalf("%+v, %v", r, err)
	}
	<-k.Ended()
	if k.Result().ExitCode != 7 {
		t.Errorf("%+v", k.Result())
	}
}

func TestManyLines(t *testing.T) {
	k := startPython(t)
	r := execute(t, k, "for n in range(300000): print(n)")
	out := string(r.Stdout.End(100))
	if !strings.HasSuffix(out, "299998\n299999\n") || r.Stdout.Bytes != 1988890 {
		t.Errorf("%d bytes, last %q", r.Stdout.Bytes, out)
	}
}

// TestIPykernel speaks ZeroMQ to the real ipykernel.
func TestIPykernel(t *testing.T) {
	if _, err := exec.Command("/usr/bin/python3", "-c", "import ipykernel").Output(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("python3-ipykernel is not installed")
		}
		t.Skip("python3-ipykernel is not installed")
	}
	s := kernels.Spec{Argv: []string{"/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"}, Language: "python"}
	k, err := kernels.Start(t.Context(), local{t}, s, t.TempDir(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Kill)
	execute(t, k, "x = 20")
	r := execute(t, k, "print('a')\nx + 1")
	if v, _ := r.Value.Text("text/plain"); v != "21" || string(r.Stdout.End(10)) != "a\n" {
		t.Errorf("%+v", r)
	}
}

func BenchmarkExecute(b *testing.B) {
	k, err := kernels.StartDriver(b.Context(), local{}, runner.Command{Argv: driver.Argv("python")})
	if err != nil {
		b.Fatal(err)
	}
	defer k.Kill()
	for b.Loop() {
		if _, err := k.Execute(b.Context(), kernels.Execution{Code: "1+1"}); err != nil {
			b.Fatal(err)
		}
	}
}

// pair returns two ends of a stream.
func pair(t *testing.T) (a, b io.ReadWriteCloser) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan net.Conn)
	go func() {
		c, _ := l.Accept()
		done <- c
	}()
	a, err = net.Dial("tcp", l.Addr().String())
	if b = <-done; err != nil || b == nil {
		t.Fatal(err)
	}
	return a, b
}

func ignoreInterrupts() { signal.Ignore(os.Interrupt) }
