package unpack

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"demesne/rootfs/internal/nstest"
	"demesne/rootfs/layers"
)

// otherVar makes a test binary a second process: one that unpacks a layer, or one that is confined.
const otherVar = "DEMESNE_TEST_OTHER"

// other starts this test again as the second process, with an argument.
func other(t *testing.T, arg any) (*exec.Cmd, io.Reader) {
	t.Helper()
	text, err := json.Marshal(arg)
	if err != nil {
		t.Fatal(err)
	}
	cmd := nstest.Again(t)
	cmd.Env = append(cmd.Env, otherVar+"="+string(text))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

type job struct {
	Dir   string
	Layer Layer
}

// unpackJob runs in the second process: it prints "." for each event.
func unpackJob(t *testing.T, text string) {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		t.Fatal(err)
	}
	s := &store{t: t, dir: j.Dir}
	in := make(chan Layer, 1)
	in <- j.Layer
	close(in)
	err := Run(t.Context(), Options{Store: s.dir, Blobs: func(d digest.Digest) (*os.File, error) { return os.Open(s.blob(d)) }},
		in, func(e Event) { os.Stdout.WriteString("<" + string(e.State) + ">") })
	if err != nil {
		t.Fatal(err)
	}
}

func bigLayer(t *testing.T, s *store) Layer {
	var all []entry
	for i := range 400 {
		all = append(all, entry{name: "d/" + strings.Repeat("n", i%200+1) + "/f", body: strings.Repeat("x", i*20)})
	}
	data := archive(t, all...)
	return s.add(zipped(t, data), data)
}

// TestTwoProcesses checks that of several processes that want the same layer only one unpacks it.
func TestTwoProcesses(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	if text := os.Getenv(otherVar); text != "" {
		unpackJob(t, text)
		return
	}
	s := newStore(t)
	l := bigLayer(t, s)
	var said string
	var cmds []*exec.Cmd
	var outs []io.Reader
	for range 3 {
		cmd, out := other(t, job{s.dir, l})
		cmds, outs = append(cmds, cmd), append(outs, out)
	}
	for i, cmd := range cmds {
		out, _ := io.ReadAll(outs[i])
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		said += string(out)
	}
	if strings.Count(said, "<done>") != 1 || strings.Count(said, "<present>") != 2 {
		t.Errorf("they said %q", said)
	}
	s.untouched(1)
}

// TestKilled checks that a process killed while unpacking leaves nothing that looks like a layer, and nothing that
// the next one cannot remove.
func TestKilled(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	if text := os.Getenv(otherVar); text != "" {
		unpackJob(t, text)
		return
	}
	s := newStore(t)
	l := bigLayer(t, s)
	for round := range 6 {
		cmd, out := other(t, job{s.dir, l})
		io.ReadFull(out, make([]byte, len("=== RUN   TestKilled\n")+round*len("<unpacking>")))
		cmd.Process.Kill()
		cmd.Wait()
		if missing := s.cache().Missing([]layers.DiffID{layers.DiffID(l.DiffID)}); missing == nil {
			if _, err := os.Stat(s.fs(l) + "/d/" + strings.Repeat("n", 200) + "/f"); err != nil {
				t.Errorf("what was killed published half a layer: %v", err)
			}
			break
		}
	}
	if err := s.run(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	s.untouched(1)
}

// TestConfine checks that a confined process can read only the store and write only its trees. It can unpack, link
// between directories and make whiteouts there, but opens no other file, no TCP connection, no device.
func TestConfine(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	if text := os.Getenv(otherVar); text != "" {
		confined(t, strings.Trim(text, `"`))
		return
	}
	s := newStore(t)
	data := archive(t, entry{name: "a/f"}, entry{name: "b", kind: dir}, entry{name: "b/f", kind: link, link: "a/f"}, entry{name: "b/.wh.x"})
	l := s.add(data, data)
	text, _ := json.Marshal(l)
	if err := os.WriteFile(s.dir+"/job", text, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd, out := other(t, s.dir)
	said, _ := io.ReadAll(out)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	s.untouched(1)
}

func confined(t *testing.T, dir string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		defer listener.Close()
	}
	held, err := Confine(dir)
	if err != nil {
		t.Fatal(err)
	}
	if nnp, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || nnp != 1 {
		t.Errorf("no_new_privs is %d, %v", nnp, err)
	}
	text, err := os.ReadFile(dir + "/job")
	if err != nil {
		t.Fatal(err)
	}
	var l Layer
	json.Unmarshal(text, &l)
	s := &store{t: t, dir: dir}
	if err := s.run(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if a, err := os.Stat(s.fs(l) + "/b/f"); err != nil || a.Sys().(*syscall.Stat_t).Nlink != 2 {
		t.Errorf("a link between directories: %v", err)
	}
	if _, err := s.cache().Sweep(nil); err != nil {
		t.Errorf("sweep: %v", err)
	}
	if err := s.run(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if !held {
		if os.Getenv("CI") != "" {
			t.Error("Landlock does not hold")
		}
		return
	}
	for _, path := range []string{"/etc/passwd", "/proc/self/environ", dir + "/../beside/file", "/"} {
		if _, err := os.Open(path); !os.IsPermission(err) {
			t.Errorf("open %q: %v", path, err)
		}
	}
	for _, path := range []string{dir + "/../beside/new", dir + "/index.json", dir + "/job"} {
		if err := os.WriteFile(path, nil, 0o644); !os.IsPermission(err) {
			t.Errorf("write %q: %v", path, err)
		}
	}
	if err := os.Rename(s.fs(l), dir+"/moved"); err == nil {
		t.Error("a tree can be moved into the store")
	}
	if err := unix.Mknod(dir+"/trees/block", unix.S_IFBLK|0o666, 0x800); err == nil {
		t.Error("a device can be made")
	}
	if listener != nil {
		if c, err := net.Dial("tcp", listener.Addr().String()); err == nil {
			c.Close()
			t.Error("a TCP connection can be made")
		}
	}
}
