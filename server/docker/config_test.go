package docker

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"demesne/runner"
	"demesne/session"
)

// parent has a workspace with a read-only directory inside, and a cow mount.
func parent() *server {
	return &server{parent: session.CreateOptions{Spec: runner.Spec{Workspace: "/host/ws", Mounts: []runner.Mount{
		{Source: "/host/hooks", Target: "/workspace/hooks", ReadOnly: true}, {Source: "/host/cow", Target: "/cow", Upper: "/up"},
	}}}, volumes: map[string]*volume{}, networks: defaultNetworks(), built: map[string]string{}}
}

// TestSizes checks sizes in words.
func TestSizes(t *testing.T) {
	for word, want := range map[string]int64{
		"64m": 64 << 20, "1G": 1 << 30, "1gb": 1 << 30, "12": 12, "2t": 2 << 40, "": -1, "m": -1, "-1": -1, "0": -1, "1x": -1, "9999999999g": -1, "1e3": -1, "99999999999999999999": -1,
	} {
		if got := sizeWord(word); got != want {
			t.Errorf("%q is %d, want %d", word, got, want)
		}
	}
}

// TestShares checks that limits are summed, with the volumes and a build, and that a parent without limits bounds nothing.
func TestShares(t *testing.T) {
	most := runner.Limits{Memory: 1 << 30, PIDs: 400, Disk: 1 << 30, CPUs: 2}
	s := parent()
	add := func(h hostConfig, volumes ...*volume) error {
		c := &container{body: creation{HostConfig: h}, volumes: volumes}
		err := c.askLimits(most)
		if err == nil {
			err = s.reserve(c, most)
		}
		if err == nil {
			s.containers = append(s.containers, c)
		}
		return err
	}
	v := &volume{Name: "v"}
	s.volumes["v"] = v
	for i, err := range []error{add(hostConfig{}), add(hostConfig{Memory: 512 << 20}, v), add(hostConfig{NanoCpus: 1e9})} {
		if err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	if v.disk != most.Disk/share {
		t.Errorf("the volume has %d bytes", v.disk)
	}
	pids := int64(400)
	for want, err := range map[string]error{
		"memory": add(hostConfig{Memory: 512 << 20}), "pids": add(hostConfig{PidsLimit: &pids}), "disk": add(hostConfig{StorageOpt: map[string]string{"size": "900m"}}),
		"cpus": add(hostConfig{CpuQuota: 100_000, CpuPeriod: 100_000}), "invalid size": add(hostConfig{StorageOpt: map[string]string{"size": "x"}}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	s.step = partOf(most)
	if err := add(hostConfig{Memory: 256 << 20}); err == nil {
		t.Error("the build has no limits")
	}
	s.step = runner.Limits{}
	most = runner.Limits{Memory: -1, PIDs: -1, Disk: -1, CPUs: -1}
	if err := add(hostConfig{Memory: 1 << 50}); err != nil {
		t.Error(err)
	}
	most = runner.Limits{Memory: 1 << 51, PIDs: 8000, Disk: 1 << 40, CPUs: 64} // the caller bounds what had no limit
	for what, err := range map[string]error{"pids": add(hostConfig{}), "pids ": s.fits(most, runner.Limits{Memory: 1})} {
		if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(what)) {
			t.Errorf("beside a container without limits: %v", err)
		}
	}
	s.containers = nil
	for name, l := range map[string]runner.Limits{"memory": {Memory: -1}, "pids": {PIDs: -1}, "disk": {Disk: -1}, "cpus": {CPUs: -1}} {
		if err := s.fits(most, runner.Limits{Memory: 1, PIDs: 1, Disk: 1, CPUs: 1}, l); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("no limit beside another container: %v", err)
		}
		if err := s.fits(runner.Limits{}, runner.Limits{Memory: 1}); err == nil {
			t.Error("a bound of zero bounds nothing")
		}
	}
}

// FuzzCreation parses requests of a hostile client. No accepted one has a mount of the host that the parent lacks, a privilege,
// or a port outside of the parent.
func FuzzCreation(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"HostConfig":{"Binds":["/etc:/x","v:/y:ro","/workspace/../etc:/z"],"Tmpfs":{"/t":"size=1m"}}}`, `{"Cmd":"a","Entrypoint":["b"],"ExposedPorts":{"80/tcp":{},"x":{}}}`,
		`{"HostConfig":{"PortBindings":{"80/tcp":[{"HostPort":"0"},{"HostPort":"80"}],"x/udp":null},"PublishAllPorts":true}}`, `{"HostConfig":{"Mounts":[{"Type":"bind","Source":"/cow","Target":"/c"}]}}`,
		`{"HostConfig":{"ExtraHosts":["a:1.2.3.4","b=::1","c"]},"Healthcheck":{"Test":["CMD","x"],"Interval":-1}}`, `{"Volumes":{"/a":{},"b":{}}}`,
	} {
		f.Add(seed)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		var b creation
		if json.Unmarshal([]byte(text), &b) != nil || b.HostConfig.refused() != "" {
			return
		}
		s := parent()
		s.dir, s.alias = dir, "parent"
		c := &container{id: newID(), body: b, ends: map[string]*endpoint{}}
		extraHosts(b.HostConfig.ExtraHosts)
		newHealthcheck(b.Healthcheck)
		if checkPorts(&c.body) == nil {
			ports, _, err := s.publish(c)
			for _, p := range ports {
				if err == nil && (p.Within != "parent" || !strings.HasPrefix(p.Listen, "127.0.0.1:")) {
					t.Errorf("%q publishes %v", text, p)
				}
			}
			c.portList()
		}
		s.mounts(c)
		for _, m := range c.create.Spec.Mounts {
			if !strings.HasPrefix(m.Source, dir+"/volume-") && !m.Socket {
				t.Errorf("%q mounts %v", text, m)
			}
		}
		filtersOf(httptest.NewRequest("GET", "/?filters="+url.QueryEscape(text), nil))
	})
}

// TestJournal checks that readers that must not miss output hold the writer back, that others lose the oldest, and that a reader
// of a closed journal waits for the next run.
func TestJournal(t *testing.T) {
	j := newJournal(true)
	next, log := j.reader(false, true), j.reader(true, false)
	j.open()
	piece := make([]byte, 32<<10)
	written := make(chan bool)
	go func() {
		for range 64 {
			j.write(stdout, piece)
		}
		j.end()
		close(written)
	}()
	n := 0
	for f, ok := next.take(true); ok; f, ok = next.take(true) {
		n += len(f.data)
	}
	<-written
	if n != 64*len(piece) {
		t.Errorf("the attached reader got %d bytes", n)
	}
	n = 0
	for f, ok := log.take(true); ok; f, ok = log.take(true) {
		n += len(f.data)
	}
	if n > journalMost || n < journalMost-2*len(piece) {
		t.Errorf("the log has %d bytes", n)
	}
	stalled := j.reader(false, true)
	j.open()
	done := make(chan bool)
	go func() {
		for range 64 {
			j.write(stderr, piece)
		}
		close(done)
	}()
	stalled.take(true)
	j.hurry() // the command has ended
	<-done
	stalled.stop()
	for _, past := range []bool{true, false} {
		j := newJournal(past)
		j.open()
		for range 100_000 {
			j.write(stdout, []byte{'x'})
		}
		if n := len(j.frames); n > journalMost/frameCost || past == (n == 0) {
			t.Errorf("of single bytes the journal has %d frames", n)
		}
	}
}

// TestTimedBody checks that a body whose parts, or whose end, come too late ends with an error, and that the connection goes on
// after one that came in time.
func TestTimedBody(t *testing.T) {
	idle, whole := time.Hour, time.Hour
	var got error
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := &timedBody{ReadCloser: r.Body, from: http.NewResponseController(w), idle: idle, end: time.Now().Add(whole)}
		_, got = io.Copy(io.Discard, b)
	}))
	defer h.Close()
	ask := func(body io.Reader) error {
		r, err := h.Client().Post(h.URL, "", body)
		if err == nil {
			r.Body.Close()
		}
		return got
	}
	if err := ask(strings.NewReader("text")); err != nil {
		t.Error(err)
	}
	for _, of := range []*time.Duration{&idle, &whole} {
		*of = time.Millisecond
		never, stop := io.Pipe()
		go stop.Write([]byte("x"))
		if err := ask(never); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a body without an end: %v", err)
		}
		stop.Close()
		*of = time.Hour
	}
	if err := ask(strings.NewReader("text")); err != nil {
		t.Error(err)
	}
}
