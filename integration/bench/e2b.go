package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// e2b measures demesne serve by E2B's SDK, with the server's defaults. Times of the SDK itself are in each figure: the same
// calls to a server that answers at once say how much.
func e2b(m *machine) {
	from := cmp.Or(os.Getenv("DEMESNE_E2B"), "/var/tmp/demesne-e2b")
	if _, err := os.Stat(from + "/installed"); err != nil {
		check(fmt.Errorf("find E2B's SDK: %w (integration/clients/e2b/install.sh)", err))
	}
	check(copyFile("integration/clients/e2b/bench.mjs", m.dir+"/bench.mjs"))
	check(os.Symlink(from+"/node_modules", m.dir+"/node_modules"))
	url, stop, err := m.serveAPI()
	check(err)
	defer stop()
	key := must(m.token())
	cmd := m.command("/usr/bin/env", "node", m.dir+"/bench.mjs", fmt.Sprint(m.rounds))
	floor := httptest.NewServer(http.HandlerFunc(answerAtOnce))
	defer floor.Close()
	cmd.Env = append(cmd.Env, "FLOOR_URL="+floor.URL, "E2B_API_URL="+url, "E2B_SANDBOX_URL="+url, "E2B_API_KEY="+key)
	m.reportE2B(found[map[string][]float64](cmd))
}

// serveAPI starts demesne serve, and returns its address.
func (m *machine) serveAPI() (url string, stop func(), err error) {
	cmd := m.command("demesne", "serve", "--http", "127.0.0.1:0")
	cmd.Env = append(cmd.Env, "DEMESNE_LIBEXEC="+filepath.Join(m.dir, "bin"))
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", nil, err
	}
	stop = func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	}
	r := bufio.NewReader(said)
	line, err := r.ReadString('\n')
	_, url, found := strings.Cut(strings.TrimSpace(line), "listening on ")
	if err != nil || !found {
		stop()
		return "", nil, fmt.Errorf("start demesne serve: %q: %w", line, err)
	}
	go io.Copy(os.Stderr, r)
	return url, stop, nil
}

// token returns the key of demesne serve's own caller.
func (m *machine) token() (string, error) {
	key, err := os.ReadFile(m.dir + "/h/.demesne/server/token")
	return strings.TrimSpace(string(key)), err
}

// answerAtOnce answers the SDK's calls as demesne does, with the same headers, and does nothing.
func answerAtOnce(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	switch {
	case r.URL.Path != "/files":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintln(w, `{"sandboxID":"ix","templateID":"base","clientID":"x","envdVersion":"0.6.4","envdAccessToken":"x"}`)
	case r.Method == http.MethodPost:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, `[{"name":"f","path":"/home/user/f","type":"file"}]`)
	default:
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Disposition", "attachment; filename=f")
		io.WriteString(w, strings.Repeat("x", 1024))
	}
}

func (m *machine) reportE2B(measured map[string][]float64) {
	times := map[string][]time.Duration{}
	for key, all := range measured {
		times[key] = durations(all, time.Millisecond)
	}
	took := m.addAll(times,
		figure{"create", "E2B: Sandbox.create", "prepared sandbox"},
		figure{"first", "E2B: Sandbox.create to first output", ""},
		figure{"command", "E2B: commands.run of true", ""},
		figure{"files", "E2B: files.write and read of 1 KiB", "first five in a sandbox"},
		figure{"used files", "E2B: files.write and read of 1 KiB, in use", "again and again in one sandbox"},
		figure{"sdk create", "… Sandbox.create, the SDK's own time", "a server that answers at once"},
		figure{"sdk files", "… files.write and read, the SDK's own time", "as the first five"},
		figure{"sdk used files", "… files.write and read, in use, the SDK's own time", ""},
		figure{"fifty", "E2B: 50 times create, run, kill at once", "all"})
	m.atMost("E2B: Sandbox.create to first output, prepared, p50", took["first"], 25*time.Millisecond)
	m.atMost("E2B: files.write and read of 1 KiB, p50", took["files"], 3*time.Millisecond)
	m.atMost("E2B: files.write and read of 1 KiB, in use, p50", took["used files"], 3*time.Millisecond)
	m.limit("E2B: 50 creates at once", len(times["fifty"]) == 1, fmt.Sprintf("all ran in %.1f s", took["fifty"].Seconds()), "none fails")
}
