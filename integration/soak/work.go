package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// worker has a server with a home of its own, and uses it.
type worker struct {
	dir, home, bin string
	server         *exec.Cmd
	url, token     string
	times          map[string][]time.Duration

	rounds, operations, failed int
	lastFailure                error
}

func newWorker(bin string) (w *worker, err error) {
	w = &worker{times: map[string][]time.Duration{}}
	defer func() {
		if err != nil {
			w.end()
		}
	}()
	if w.dir, err = os.MkdirTemp("/var/tmp", "demesne-soak."); err != nil {
		return w, err
	}
	w.home, w.bin = w.dir+"/home", w.dir+"/bin"
	if err := errors.Join(os.Chmod(w.dir, 0o755), os.Mkdir(w.home, 0o711), os.CopyFS(w.bin, os.DirFS(bin))); err != nil {
		return w, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return w, err
	}
	address := l.Addr().String()
	l.Close()
	w.url = "http://" + address
	w.server = w.command("serve", "--http", address)
	w.server.Stderr = os.Stderr
	if err := w.server.Start(); err != nil {
		return w, err
	}
	if err := w.await(); err != nil {
		return w, err
	}
	token, err := os.ReadFile(w.home + "/.demesne/server/token")
	w.token = strings.TrimSpace(string(token))
	return w, err
}

// command is one of demesne with the home of this soak.
func (w *worker) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(w.bin, "demesne"), args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.home, "DEMESNE_STATE=" + w.home + "/.demesne", "DEMESNE_SANDBOX_ROOT=" + w.dir + "/sandboxes"}
	cmd.Dir = w.home
	return cmd
}

// await returns when the server answers, or has ended.
func (w *worker) await() error {
	ended := make(chan error, 1)
	go func() { ended <- w.server.Wait() }()
	for range 600 {
		if r, err := http.Get(w.url + "/health"); err == nil {
			r.Body.Close()
			return nil
		}
		select {
		case err := <-ended:
			return fmt.Errorf("the server ended: %w", errors.Join(err, errors.New("see above")))
		case <-time.After(100 * time.Millisecond):
		}
	}
	return errors.New("the server does not answer")
}

// end stops the server and its runners, and removes the files.
func (w *worker) end() {
	if w.server != nil && w.server.Process != nil {
		w.server.Process.Signal(syscall.SIGTERM)
		for range 100 {
			if syscall.Kill(w.server.Process.Pid, 0) != nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	if w.bin != "" {
		w.command("gc", "--runner").Run()
	}
	os.RemoveAll(w.dir)
}

// round is one of everything.
func (w *worker) round() {
	w.rounds++
	name := fmt.Sprint("s", w.rounds)
	w.do("run", func() error { return w.cli("ran\n", "run", "--", "echo", "ran") })
	w.do("denied", func() error {
		return w.cli("refused\n", "run", "--allow-domain", "good.test", "--", "sh", "-c", "curl -sf -m 5 http://other.test/ || echo refused")
	})
	w.do("create", func() error { return w.api("POST", "sandboxes", map[string]any{"name": name}, `"running"`) })
	for i := range 5 {
		w.do("exec", func() error {
			return w.api("POST", "sandboxes/"+name+"/exec", map[string]any{"command": fmt.Sprintf("head -c 100000 /dev/urandom > f%d; ls | wc -l", i)}, fmt.Sprintf(`%d\n`, i+1))
		})
	}
	w.do("fail", func() error {
		return w.api("POST", "sandboxes/"+name+"/exec", map[string]any{"command": "exit 3"}, `"exit_code":3`)
	})
	w.do("fork", func() error {
		return w.api("POST", "sandboxes/"+name+"/fork", map[string]any{"name": name + "f"}, `"state"`)
	})
	w.do("kept", func() error {
		return w.api("POST", "sandboxes/"+name+"f/exec", map[string]any{"command": "cat f0 | wc -c"}, `100000\n`)
	})
	w.do("job", func() error { return w.cli("", "run", "--background", "--", "echo", "job") })
	for _, n := range []string{name, name + "f"} {
		w.do("remove", func() error { return w.api("DELETE", "sandboxes/"+n, nil, "") })
	}
	if w.rounds%20 == 0 {
		w.do("gc", func() error { return w.cli("", "gc", "--outputs", "--older-than", "1m") })
	}
}

func (w *worker) do(kind string, work func() error) {
	begin := time.Now()
	err := work()
	w.times[kind] = append(w.times[kind], time.Since(begin))
	w.operations++
	if err != nil {
		w.failed++
		w.lastFailure = fmt.Errorf("%s: %w", kind, err)
		fmt.Fprintln(os.Stderr, "soak:", w.lastFailure)
	}
}

func (w *worker) latency(kind string) time.Duration {
	all := w.times[kind]
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// cli runs demesne, and wants that output, or any if it is empty.
func (w *worker) cli(want string, args ...string) error {
	var out, errs bytes.Buffer
	cmd := w.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || want != "" && out.String() != want {
		return fmt.Errorf("%q: %w: %s%s", args, err, out.String(), errs.String())
	}
	return nil
}

// api sends a request, and wants a success that contains a text.
func (w *worker) api(method, path string, body any, want string) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequest(method, w.url+"/v1/"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("X-API-KEY", w.token)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= 300 || !bytes.Contains(got, []byte(want)) {
		return fmt.Errorf("%s %s: %s: %.300s: %w", method, path, answer.Status, got, cmp.Or(err, errors.New("unexpected answer")))
	}
	return nil
}
