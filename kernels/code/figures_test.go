package code_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"demesne/kernels"
	"demesne/kernels/code"
	"demesne/kernels/driver"
	"demesne/runner"
	"demesne/runner/files"
	"demesne/session"
)

// figures are the times of BenchmarkSessions, by name.
type figures map[string][]time.Duration

func (f figures) take(b *testing.B, name string, measured func() error) {
	b.Helper()
	start := time.Now()
	if err := measured(); err != nil {
		b.Fatalf("%s: %v", name, err)
	}
	f[name] = append(f[name], time.Since(start))
}

// BenchmarkSessions measures sessions, and the same without a sandbox. integration/bench runs it, and reads the line
// that it prints.
func BenchmarkSessions(b *testing.B) {
	rounds, err := strconv.Atoi(os.Getenv("DEMESNE_ROUNDS"))
	if err != nil {
		rounds = 10
	}
	d, f := newDesk(b), figures{}
	d.Service.Close() // each round has its own
	for round := range rounds + 1 {
		if round == 1 {
			clear(f) // the first round reads the programs from disk
		}
		cold(b, d, f)
		bare(b, f)
		if round <= max(3, rounds/5) {
			jupyter(b, d, f)
		}
	}
	live(b, d, f, rounds)
	peak := lines(b, d, f)
	text, err := json.Marshal(map[string]any{"times": f, "peak": peak})
	if err != nil {
		b.Fatal(err)
	}
	fmt.Printf("figures: %s\n", text)
}

func once(ctx context.Context, s *code.Session) error {
	r, err := s.Execute(ctx, kernels.Execution{Code: "1+1"})
	if v := ""; err == nil {
		if v, _ = r.Value.Text("text/plain"); v != "2" {
			err = fmt.Errorf("1+1 is %q", v)
		}
	}
	return err
}

// cold measures first results: without a runner, with one, and of a session that was started ahead.
func cold(b *testing.B, d *desk, f figures) {
	for len(d.processes()) > 0 {
		time.Sleep(time.Millisecond)
	}
	service := session.New(session.Options{})
	defer service.Close()
	st := code.NewStore(service, code.Limits{Prepared: 1})
	defer st.Close()
	first := func() error {
		s, err := st.Create(b.Context(), "", options(b, "python"), session.Callbacks{})
		if err == nil {
			err = once(b.Context(), s)
		}
		return err
	}
	f.take(b, "cold", first)
	for st.Ready() == 0 {
		time.Sleep(time.Millisecond)
	}
	f.take(b, "prepared", first)
	s, err := code.Start(b.Context(), service, options(b, "python"), session.Callbacks{})
	if err != nil {
		b.Fatal(err)
	}
	s.Close()
	f.take(b, "runner", func() error {
		s, err := code.Start(b.Context(), service, options(b, "python"), session.Callbacks{})
		if err == nil {
			defer s.Close()
			err = once(b.Context(), s)
		}
		return err
	})
}

// forkServer is a Python that has imported what the driver needs. It forks a child for each line that it reads.
const forkServer = `
import ast, asyncio, base64, importlib.abc, importlib.util, inspect, json, linecache, platform, re, signal, sys, threading, traceback, types, uuid, os
print("ready", flush=True)
for line in sys.stdin:
    if os.fork() == 0:
        print(eval(line), flush=True)
        os._exit(0)
    os.wait()
`

// bare measures Python alone, and a fork of one that has started.
func bare(b *testing.B, f figures) {
	f.take(b, "python", func() error { return exec.Command("python3", "-c", "print(1+1)").Run() })
	f.take(b, "driver", func() error {
		k, err := kernels.StartDriver(b.Context(), local{}, runner.Command{Argv: driver.Argv("python")})
		if err == nil {
			defer k.Kill()
			_, err = k.Execute(b.Context(), kernels.Execution{Code: "1+1"})
		}
		return err
	})
	cmd := exec.Command("python3", "-c", forkServer)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil || cmd.Start() != nil {
		b.Fatal("start the fork server")
	}
	answers := bufio.NewReader(out)
	answers.ReadString('\n')
	f.take(b, "fork", func() error {
		io.WriteString(in, "1+1\n")
		_, err := answers.ReadString('\n')
		return err
	})
	in.Close()
	cmd.Wait()
}

// ipykernel is the kernelspec of Debian's python3-ipykernel.
var ipykernel = kernels.Spec{Argv: []string{"/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"}, Language: "python"}

// jupyter measures ipykernel without a sandbox, by our client and by Jupyter's.
func jupyter(b *testing.B, d *desk, f figures) {
	f.take(b, "ipykernel", func() error {
		k, err := kernels.Start(b.Context(), local{}, ipykernel, b.TempDir(), "", 1)
		if err == nil {
			defer k.Kill()
			_, err = k.Execute(b.Context(), kernels.Execution{Code: "1+1"})
		}
		return err
	})
	if _, err := exec.LookPath("jupyter-run"); err != nil {
		return // the bench says so
	}
	// The kernel ends itself: what jupyter-run leaves behind waits for a parent with PID 1, and this process may adopt it.
	file := d.dir + "/one.py"
	const text = "print(1+1, flush=True)\nimport os, threading\nthreading.Timer(1, os._exit, (0,)).start()\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
	for range 5 {
		if took, err := jupyterRun(file); err == nil {
			f["jupyter run"] = append(f["jupyter run"], took)
			return
		}
	}
	b.Fatal("jupyter run printed nothing in five attempts")
}

// jupyterRun returns the time until jupyter-run prints the result of a file. It misses the result if its subscription
// reaches the kernel late, and ends then.
func jupyterRun(file string) (took time.Duration, err error) {
	start := time.Now()
	cmd := exec.Command("jupyter-run", "--kernel=python3", file)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	took = time.Since(start)
	cmd.Process.Kill()
	cmd.Wait()
	if line != "2\n" {
		return 0, fmt.Errorf("%q, %w", line, err)
	}
	return took, nil
}

// live measures executions in kernels that run.
func live(b *testing.B, d *desk, f figures, rounds int) {
	service := session.New(session.Options{})
	defer service.Close()
	s, err := code.Start(b.Context(), service, options(b, "python"), session.Callbacks{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	own, err := kernels.StartDriver(b.Context(), local{}, runner.Command{Argv: driver.Argv("python")})
	if err != nil {
		b.Fatal(err)
	}
	defer own.Kill()
	ipy, err := kernels.Start(b.Context(), local{}, ipykernel, b.TempDir(), "", 1)
	if err != nil {
		b.Fatal(err)
	}
	defer ipy.Kill()
	for n := range 10*rounds + 10 {
		if n == 10 {
			for _, name := range []string{"live", "live driver", "live ipykernel"} {
				delete(f, name)
			}
		}
		f.take(b, "live", func() error { return once(b.Context(), s) })
		for name, k := range map[string]*kernels.Running{"live driver": own, "live ipykernel": ipy} {
			f.take(b, name, func() error {
				_, err := k.Execute(b.Context(), kernels.Execution{Code: "1+1"})
				return err
			})
		}
	}
	// Python itself compiles, evaluates and prints.
	r, err := s.Execute(b.Context(), kernels.Execution{Code: "import timeit\ntimeit.timeit(\"repr(eval(compile('1+1', 'x', 'eval')))\", number=1000) / 1000"})
	if err != nil {
		b.Fatal(err)
	}
	v, _ := r.Value.Text("text/plain")
	seconds, err := strconv.ParseFloat(v, 64)
	if err != nil {
		b.Fatal(err)
	}
	f["interpreter"] = append(f["interpreter"], time.Duration(seconds*float64(time.Second)))
}

// lines measures a million lines of output, and returns the peak memory of this process meanwhile, in KiB.
func lines(b *testing.B, d *desk, f figures) (peak int) {
	service := session.New(session.Options{})
	defer service.Close()
	s, err := code.Start(b.Context(), service, options(b, "python"), session.Callbacks{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	const text = "for n in range(1000000): print(n)"
	f.take(b, "lines, python", func() error { return exec.Command("python3", "-u", "-c", text).Run() })
	os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // forgets the peak so far
	for range 3 {
		f.take(b, "lines", func() error {
			r, err := s.Execute(b.Context(), kernels.Execution{Code: text})
			if err == nil && (!strings.HasSuffix(string(r.Stdout.End(100)), "999998\n999999\n") || r.Stdout.Bytes != 6888890) {
				err = fmt.Errorf("%d bytes, and at the end %q", r.Stdout.Bytes, r.Stdout.End(100))
			}
			return err
		})
	}
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	peak, _ = strconv.Atoi(strings.Fields(rest + " 0")[0])
	return peak
}

// local executes kernels without a sandbox.
type local struct{}

type localProcess struct{ cmd *exec.Cmd }

func (local) Exec(ctx context.Context, c runner.Command) (kernels.Process, error) {
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = c.Stdout, c.Stderr, c.Extra
	if c.Stdin != nil {
		cmd.Stdin = c.Stdin
	}
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return localProcess{cmd}, cmd.Start()
}

func (local) Dial(ctx context.Context, port uint16) (io.ReadWriteCloser, error) {
	for {
		c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(int(port)))
		if err == nil || ctx.Err() != nil {
			return c, err
		}
		time.Sleep(time.Millisecond)
	}
}

func (local) Files(ctx context.Context, r files.Request) (*files.Answer, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	files.Serve(bytes.NewReader(raw), &out)
	return files.ReadAnswer(&out)
}

func (p localProcess) Signal(s syscall.Signal) error { return syscall.Kill(-p.cmd.Process.Pid, s) }

func (p localProcess) Wait(context.Context) (*runner.Result, error) {
	p.cmd.Wait()
	return &runner.Result{ExitCode: p.cmd.ProcessState.ExitCode(), Reason: runner.Exited}, nil
}
