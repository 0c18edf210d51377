package worker

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// asProgram makes the test binary run as demesne-images.
const asProgram = "DEMESNE_TEST_IMAGES"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		Main()
		return
	}
	os.Exit(m.Run())
}

// program is a running demesne-images.
type program struct {
	*exec.Cmd
	stdin  io.WriteCloser
	stdout io.Reader
	stderr bytes.Buffer
}

func start(t *testing.T, entered bool, args ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.Command(os.Args[0], args...)}
	p.Env = append(os.Environ(), asProgram+"=1")
	p.Cmd.Stderr = &p.stderr
	if entered {
		p.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		}
	}
	var err, err2 error
	p.stdin, err = p.StdinPipe()
	p.stdout, err2 = p.StdoutPipe()
	if err := errors.Join(err, err2, p.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill(); p.Wait() })
	return p
}

// finish reads all events; the exit status must agree with the last one.
func (p *program) finish(t *testing.T) (all []events.Event) {
	t.Helper()
	lines := bufio.NewScanner(p.stdout)
	for lines.Scan() {
		var e events.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Errorf("not an event: %q: %v", lines.Text(), err)
		}
		all = append(all, e)
	}
	p.stdin.Close()
	err := p.Wait()
	failed := len(all) > 0 && all[len(all)-1].Event == events.Error
	if failed != (err != nil) {
		t.Errorf("it ended with %v after %+v", err, all)
	}
	if p.stderr.Len() > 0 {
		t.Errorf("stderr: %s", &p.stderr)
	}
	return all
}

// do runs a command to its end and returns the last event.
func do(t *testing.T, args ...string) events.Event {
	t.Helper()
	all := start(t, false, args...).finish(t)
	if len(all) == 0 {
		t.Fatalf("%q said nothing", args)
	}
	return all[len(all)-1]
}

func succeed(t *testing.T, args ...string) oci.Digest {
	t.Helper()
	e := do(t, args...)
	if e.Event != events.Result || e.Digest == "" {
		t.Fatalf("%q: %+v", args, e)
	}
	return e.Digest
}

// aRootfs returns the path of a tar with a root file system of one file.
func aRootfs(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rootfs.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "hello", Mode: 0o644, Size: int64(len(text))})
	_, err2 := io.WriteString(w, text)
	if err := errors.Join(err, err2, w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func empty(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRoundTrips checks that a root file system can be imported, saved and loaded elsewhere. Import and pull
// must give the same image, and export the same files.
func TestRoundTrips(t *testing.T) {
	one, two := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two")
	d := succeed(t, "import", "--store", one, aRootfs(t, "hi"), "docker.io/o/n:1")
	for _, format := range []string{"oci", "docker"} {
		out := empty(t, "image.tar")
		if got := succeed(t, "save", "--store", one, "--format", format, "o/n:1", out); got != d {
			t.Errorf("saved %s, not %s", got, d)
		}
		loaded := succeed(t, "import", "--store", two, out, "docker.io/o/n:"+format)
		pulled := succeed(t, "pull", "--store", two, format+"-archive:"+out)
		if loaded != pulled || format == "oci" && loaded != d {
			t.Errorf("%s: loaded %s, pulled %s, saved %s", format, loaded, pulled, d)
		}
		rootfs := empty(t, "rootfs.tar")
		succeed(t, "export", "--store", two, string(loaded), rootfs)
		if b, err := os.ReadFile(rootfs); err != nil || !bytes.Contains(b, []byte("hello")) {
			t.Errorf("%s: %d bytes, %v", format, len(b), err)
		}
	}
	if got := succeed(t, "pull", "--store", two, "oci:"+one+":docker.io/o/n:1"); got != d {
		t.Errorf("pulled %s from the other store, not %s", got, d)
	}
}

// TestUsage checks that every wrong invocation yields one error event with the right code and text.
func TestUsage(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	for _, c := range []struct {
		args []string
		code events.Code
		text string
	}{
		{nil, events.CodeInvalid, "no command given"},
		{[]string{"fly"}, events.CodeInvalid, `unknown command "fly"`},
		{[]string{"pull", "--store", store}, events.CodeInvalid, "pull: 0 arguments, not 1"},
		{[]string{"pull", "--wings", "a"}, events.CodeInvalid, "pull: flag --wings: unknown"},
		{[]string{"pull", "--store", store, "UPPER"}, events.CodeInvalid, "upper"},
		{[]string{"pull", "--store", store, "host"}, events.CodeInvalid, `"host"`},
		{[]string{"pull", "--store", store, "--platform", "linux", "o/n"}, events.CodeInvalid, `"linux"`},
		{[]string{"import", "--store", store, "/nonexistent", "mine"}, events.CodeInternal, "nonexistent"},
		{[]string{"import", "--store", store, "/dev/null", "mine"}, events.CodeUnsupported, "an empty file, or not an archive"},
		{[]string{"save", "--store", store, "o/n:1", "/dev/null"}, events.CodeNotFound, "o/n:1"},
		{[]string{"export", "--store", store, "o/n:1", "/dev/null"}, events.CodeNotFound, "o/n:1"},
		{[]string{"pull", "--store", "/proc/nothing/here", "o/n"}, events.CodeInternal, "/proc/nothing"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			e := do(t, c.args...)
			if e.Event != events.Error || e.Code != c.code || !strings.Contains(e.Text, c.text) {
				t.Errorf("%+v", e)
			}
		})
	}
}

// TestLifeline checks that a command ends when its caller closes its stdin, whatever it waits for.
func TestLifeline(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // accepts connections and never answers
	store := filepath.Join(t.TempDir(), "store")
	p := start(t, false, "pull", "--store", store, l.Addr().String()+"/o/n:1")
	l.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute))
	conn, err := l.Accept()
	if err != nil {
		t.Fatalf("%v: %+v", err, p.finish(t))
	}
	defer conn.Close()
	p.stdin.Close()
	all := p.finish(t)
	if last := all[len(all)-1]; last.Code != events.CodeCanceled {
		t.Errorf("%+v", last)
	}
}

// TestUnpackSweep checks that unpack unpacks the layers named on stdin, and sweep removes all others.
func TestUnpackSweep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	d := succeed(t, "import", "--store", dir, aRootfs(t, "hi"), "docker.io/o/n:1")
	store, err := images.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := imageref.Parse(string(d))
	if err != nil {
		t.Fatal(err)
	}
	img, err := store.Lookup(ref)
	if err != nil {
		t.Fatal(err)
	}
	layer := img.Layers[0]
	if got := unpackOne(t, dir, layer); !slices.Contains(got, events.Done) {
		t.Errorf("%q", got)
	}
	if got := unpackOne(t, dir, layer); !slices.Equal(got, []events.State{events.Present}) {
		t.Errorf("again: %q", got)
	}
	for _, c := range []struct {
		keep  string
		after events.State
	}{{string(layer.DiffID) + "\n", events.Present}, {"", events.Done}} {
		p := start(t, true, "sweep", "--store", dir)
		if _, err := io.WriteString(p.stdin, c.keep); err != nil {
			t.Fatal(err)
		}
		p.stdin.Close()
		all := p.finish(t)
		if last := all[len(all)-1]; last.Event != events.Result || (last.Freed > 0) != (c.keep == "") {
			t.Errorf("keeping %q: %+v", c.keep, last)
		}
		if got := unpackOne(t, dir, layer); got[len(got)-1] != c.after {
			t.Errorf("keeping %q: %q", c.keep, got)
		}
	}
}

// unpackOne unpacks one layer and returns the states that are reported of it.
func unpackOne(t *testing.T, dir string, l oci.Layer) (states []events.State) {
	t.Helper()
	p := start(t, true, "unpack", "--store", dir)
	if err := json.NewEncoder(p.stdin).Encode(l); err != nil {
		t.Fatal(err)
	}
	p.stdin.Close()
	for _, e := range p.finish(t) {
		if e.Event != events.Layer || e.DiffID != l.DiffID {
			t.Errorf("%+v", e)
			continue
		}
		states = append(states, e.State)
	}
	return states
}

// TestUnpackBadLines checks that a line of stdin that is not a layer ends the command.
func TestUnpackBadLines(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	for _, line := range []string{"{", `{"digest":"md5:x"}`, `{"digest":"sha256:../../x"}`, strings.Repeat("x", 100_000)} {
		p := start(t, true, "unpack", "--store", dir)
		_, _ = io.WriteString(p.stdin, line+"\n")
		p.stdin.Close()
		all := p.finish(t)
		if len(all) == 0 || all[len(all)-1].Event != events.Error {
			t.Errorf("%.40q: %+v", line, all)
		}
	}
}

// TestSignal checks that a signal ends the command with an error event.
func TestSignal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	p := start(t, true, "unpack", "--store", dir)
	for _, err := os.Stat(dir); err != nil; _, err = os.Stat(dir) { // the directory is created after signal handlers are installed
		time.Sleep(time.Millisecond)
	}
	p.Process.Signal(syscall.SIGTERM)
	all := p.finish(t)
	if len(all) != 1 || all[0].Code != events.CodeCanceled {
		t.Errorf("%+v", all)
	}
}
