package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"demesne/runner"
	"demesne/runner/ipc"
)

// corner is a test's own run directory, home and directory of persistent sandboxes.
type corner struct {
	*testing.T
	dir string
}

// newCorner builds the programs. At the end it removes everything through a runner, which alone can remove files of
// subordinate ids.
func newCorner(t *testing.T) corner {
	t.Helper()
	buildPrograms(t)
	dir, err := os.MkdirTemp("/var/tmp", "dmk") // on a disk
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(dir, 0o755)
	for name, value := range map[string]string{
		"XDG_RUNTIME_DIR": dir, "DEMESNE_SANDBOX_ROOT": dir + "/s", "HOME": dir, "DEMESNE_LINGER": "0",
		"DEMESNE_POOL_SIZE": "0", // a prepared sandbox has a directory, and the tests count those
	} {
		t.Setenv(name, value)
	}
	c := corner{t, dir}
	t.Cleanup(func() {
		client := c.connect()
		all, err := client.List(context.Background())
		for _, i := range all {
			if serr := client.Remove(context.Background(), i.ID); code(serr) != ipc.CodeNoSuchSandbox { // a one-shot sandbox may be ending
				err = errors.Join(err, serr)
			}
		}
		client.Close()
		c.eventually("the runner to end", func() bool { _, err := os.Lstat(c.lock()); return err != nil })
		slots, _ := filepath.Glob(dir + "/s/.slot-*")
		if left := append(c.boxes(), slots...); err != nil || len(left) > 0 { // a runner finishes its removals before it ends
			t.Errorf("left: %q, %v", left, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c corner) connect() *Client {
	c.Helper()
	client, err := Connect(context.Background(), Options{})
	if err != nil {
		c.Fatal(err)
	}
	if client.hello.Mode != "user" && client.hello.Mode != "root" && os.Getenv("CI") == "" {
		c.Skip("no user namespaces here")
	}
	return client
}

// lock returns the path of the file that a runner or its reaper has locked.
func (c corner) lock() string {
	found, _ := filepath.Glob(c.dir + "/demesne/*.lock")
	if len(found) == 0 {
		return c.dir + "/none"
	}
	return found[0]
}

// boxes returns the names in the directory of persistent sandboxes.
func (c corner) boxes() (names []string) {
	list, _ := os.ReadDir(c.dir + "/s")
	for _, e := range list {
		if e.Name() != "trees" && !strings.HasPrefix(e.Name(), ".slot-") {
			names = append(names, e.Name())
		}
	}
	return names
}

func (c corner) eventually(what string, done func() bool) {
	c.Helper()
	for range 6000 {
		if done() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.Errorf("waited in vain for %s", what)
}

// create makes a persistent sandbox on the host's files.
func (c corner) create(client *Client, spec runner.Spec) *Sandbox {
	c.Helper()
	spec.Lifetime = runner.Persistent
	if spec.Out == "" {
		spec.Out = c.TempDir()
	}
	s, err := client.Create(context.Background(), spec)
	if err != nil {
		c.Fatal(err)
	}
	if err := s.Account(context.Background()); err != nil {
		c.Fatal(err)
	}
	for _, l := range s.Receipt.Layers {
		if l.Name == "files" && l.Status != runner.Held {
			c.Fatalf("files are %s: %s", l.Detail, l.Why)
		}
	}
	return s
}

// sh runs a script and returns its output and its result.
func (c corner) sh(s *Sandbox, script string) (string, *runner.Result) {
	c.Helper()
	out, r, err := trySh(s, script)
	if err != nil {
		c.Fatalf("%s: %v", script, err)
	}
	return out, r
}

func trySh(s *Sandbox, script string) (string, *runner.Result, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", nil, err
	}
	defer r.Close()
	p, err := s.Exec(context.Background(), runner.Command{Argv: []string{"sh", "-c", script}, Stdout: w, Stderr: w})
	w.Close()
	if err != nil {
		return "", nil, err
	}
	out, _ := io.ReadAll(r)
	result, err := p.Wait(context.Background())
	return strings.TrimSpace(string(out)), result, err
}

// kill kills the runner and waits until its reaper has finished.
func (c corner) kill(client *Client) {
	c.Helper()
	if err := syscall.Kill(client.hello.PID, syscall.SIGKILL); err != nil {
		c.Fatal(err)
	}
	<-client.peer.Done()
	client.Close()
}

func code(err error) ipc.Code {
	var e *ipc.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// TestKeptKilled: a killed runner takes the processes along but leaves the files, in 20 rounds.
func TestKeptKilled(t *testing.T) {
	c := newCorner(t)
	client := c.connect()
	s := c.create(client, runner.Spec{Name: "box"})
	c.sh(s, "mkdir /workspace/d; echo 0 > /workspace/n; touch /tmp/t; echo x >> /etc/hosts; rm -f /etc/services")
	for round := range 20 {
		c.sh(s, "sleep 1000 >/dev/null 2>&1 & sync")
		c.kill(client)
		client = c.connect()
		all, err := client.List(context.Background())
		if err != nil || len(all) != 1 || all[0].State != runner.Stopped || all[0].Name != "box" || all[0].PID != 0 {
			t.Fatalf("round %d: list: %+v, %v", round, all, err)
		}
		if s, err = client.Open(context.Background(), "box"); err != nil {
			t.Fatal(err)
		}
		out, r := c.sh(s, "n=$(cat /workspace/n); echo $((n+1)) > /workspace/n; ls -d /tmp/t /workspace/d; tail -1 /etc/hosts; ls /etc/services 2>/dev/null; pgrep sleep; echo $n")
		if want := fmt.Sprintf("/tmp/t\n/workspace/d\nx\n%d", round); out != want || !r.Restarted || !s.Restarted {
			t.Fatalf("round %d: %q, want %q; restarted %t", round, out, want, r.Restarted)
		}
	}
	if got := c.boxes(); len(got) != 1 || got[0] != s.ID {
		t.Errorf("on the disk: %q", got)
	}
	client.Close()
}

// TestKeptHalt: Stop keeps a sandbox's files, and Remove does not.
func TestKeptHalt(t *testing.T) {
	c := newCorner(t)
	ctx := context.Background()
	client := c.connect()
	defer client.Close()
	s := c.create(client, runner.Spec{Name: "box"})
	c.sh(s, "echo kept > /root/f")
	if err := client.Stop(ctx, "box", 0); err != nil {
		t.Fatal(err)
	}
	if i, err := client.Inspect(ctx, "box"); err != nil || i.State != runner.Stopped || i.Result == nil || i.ID != s.ID {
		t.Errorf("inspect: %+v, %v", i, err)
	}
	if _, err := client.Create(ctx, runner.Spec{Name: "box", Out: t.TempDir()}); code(err) != ipc.CodeExists {
		t.Errorf("the name twice: %v", err)
	}
	// The same Sandbox value still works.
	if out, r := c.sh(s, "cat /root/f"); out != "kept" || !r.Restarted {
		t.Errorf("after a halt: %q %+v", out, r)
	}
	// The restart is reported once.
	if _, r := c.sh(s, "true"); r.Restarted {
		t.Errorf("the second command after a halt: %+v", r)
	}
	again, err := client.Open(ctx, s.ID)
	if err != nil || again.Restarted {
		t.Errorf("open: %+v, %v", again, err)
	}
	for range 2 { // the second time it has no processes
		if err := client.Stop(ctx, s.ID, 0); err != nil {
			t.Error(err)
		}
	}
	if err := client.Remove(ctx, "box"); err != nil {
		t.Error(err)
	}
	if left := c.boxes(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if _, err := client.Open(ctx, s.ID); code(err) != ipc.CodeGone {
		t.Errorf("open what was stopped: %v", err)
	}
	if err := client.Remove(ctx, s.ID); code(err) != ipc.CodeNoSuchSandbox {
		t.Errorf("stop it again: %v", err)
	}
}

// TestKeptInputs: a restart opens the sandbox's inputs again, and requires them to exist.
func TestKeptInputs(t *testing.T) {
	c := newCorner(t)
	ctx := context.Background()
	client := c.connect()
	defer client.Close()
	in := filepath.Join(t.TempDir(), "in")
	write := func(text string) {
		if err := errors.Join(os.WriteFile(in, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	s := c.create(client, runner.Spec{Inputs: []runner.Input{{Path: in, Name: "f"}}, Workspace: t.TempDir()})
	c.sh(s, "echo w > /workspace/w")
	if err := client.Stop(ctx, s.ID, 0); err != nil {
		t.Fatal(err)
	}
	os.Remove(in)
	if _, err := client.Open(ctx, s.ID); code(err) != ipc.CodeInvalid || !errors.Is(err, fs.ErrNotExist) && !strings.Contains(err.Error(), in) {
		t.Errorf("open without its input: %v", err)
	}
	write("two")
	s, err := client.Open(ctx, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := c.sh(s, "cat /in/f /workspace/w; echo x > /in/f"); !strings.HasPrefix(out, "twow") {
		t.Errorf("input: %q", out)
	}
}

// TestKeptMany: concurrent callers get the same sandbox, started once.
func TestKeptMany(t *testing.T) {
	c := newCorner(t)
	client := c.connect()
	s := c.create(client, runner.Spec{})
	c.sh(s, "echo kept > /root/f")
	c.kill(client)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			client, err := Connect(context.Background(), Options{})
			if err != nil {
				t.Error(err)
				return
			}
			defer client.Close()
			s, err := client.Open(context.Background(), s.ID)
			if err != nil {
				t.Error(err)
				return
			}
			if out, _, err := trySh(s, "cat /root/f; echo x >> /root/count"); out != "kept" || err != nil {
				t.Errorf("%q, %v", out, err)
			}
		})
	}
	all.Wait()
	client = c.connect()
	defer client.Close()
	s, err := client.Open(context.Background(), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := c.sh(s, "wc -l < /root/count"); out != "8" {
		t.Errorf("%s of 8 wrote", out)
	}
}

// TestKeptTTL: use renews the time to live but not MaxAge, and a sandbox without processes also expires.
func TestKeptTTL(t *testing.T) {
	c := newCorner(t)
	ctx := context.Background()
	client := c.connect()
	expires := func(id string) time.Time {
		i, err := client.Inspect(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return i.Expires
	}
	s := c.create(client, runner.Spec{TTL: runner.Duration(time.Hour)})
	old := expires(s.ID)
	c.sh(s, "true")
	if now := expires(s.ID); !now.After(old) {
		t.Errorf("expires %v, and %v after a command", old, now)
	}
	old = expires(s.ID)
	aged := c.create(client, runner.Spec{TTL: runner.Duration(time.Hour), MaxAge: runner.Duration(time.Minute)})
	c.sh(aged, "true")
	if left := time.Until(expires(aged.ID)); left > time.Minute {
		t.Errorf("an age of a minute ends in %v", left)
	}
	brief := c.create(client, runner.Spec{TTL: runner.Duration(3 * time.Second)})
	c.sh(brief, "sleep 3.2") // a running command counts as use
	c.kill(client)
	client = c.connect()
	defer client.Close()
	if now := expires(s.ID); now.Sub(old).Abs() > time.Second {
		t.Errorf("expires %v, and %v after the runner was killed", old, now)
	}
	time.Sleep(time.Until(expires(brief.ID)) + 10*time.Millisecond) // until it expires
	if _, err := client.Open(ctx, brief.ID); code(err) != ipc.CodeNoSuchSandbox {
		t.Errorf("open what expired: %v", err)
	}
	removed, err := client.GC(ctx)
	if err != nil || len(removed) != 1 || removed[0] != brief.ID || len(c.boxes()) != 2 {
		t.Errorf("swept %q, %v; left %q", removed, err, c.boxes())
	}
}

// TestKeptDisk: persistent files count against the disk limit, including those from before a restart.
func TestKeptDisk(t *testing.T) {
	c := newCorner(t)
	client := c.connect()
	defer client.Close()
	s := c.create(client, runner.Spec{Limits: runner.Limits{Disk: 32 << 20}})
	if _, r := c.sh(s, "head -c 20000000 /dev/urandom > /var/tmp/a; sync"); r.ExitCode != 0 {
		t.Errorf("20 MB of 32: %+v", r)
	}
	if err := client.Stop(context.Background(), s.ID, 0); err != nil {
		t.Fatal(err)
	}
	if _, r := c.sh(s, "head -c 20000000 /dev/urandom > /var/tmp/b; sync; sleep 20"); r.Reason != runner.DiskFull {
		t.Errorf("20 MB more: %+v", r)
	}
}

// busybox returns a directory with a shell and little else, to be used as /.
func busybox(t *testing.T) string {
	t.Helper()
	program, err := os.ReadFile("/bin/busybox")
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	dir := t.TempDir()
	for up := dir; up != "/var/tmp" && up != filepath.Clean(os.TempDir()) && err == nil; up = filepath.Dir(up) {
		err = os.Chmod(up, 0o755)
	}
	err = errors.Join(err, os.MkdirAll(dir+"/bin", 0o755), os.WriteFile(dir+"/bin/busybox", program, 0o755),
		os.MkdirAll(dir+"/etc", 0o755), os.WriteFile(dir+"/etc/passwd", []byte("root:x:0:0::/root:/bin/sh\n"), 0o644))
	for _, applet := range []string{"sh", "cat", "rm", "mkdir"} {
		err = errors.Join(err, os.Symlink("busybox", dir+"/bin/"+applet))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestKeptImage: files over an image persist too, and the image does not change.
func TestKeptImage(t *testing.T) {
	c := newCorner(t)
	ctx := context.Background()
	image := busybox(t)
	client := c.connect()
	s := c.create(client, runner.Spec{Name: "box", Image: "dir:" + image, Rootfs: &runner.Rootfs{Dir: image}})
	c.sh(s, "echo kept > /f; mkdir /new; rm /etc/passwd")
	c.kill(client)
	client = c.connect()
	defer client.Close()
	s, err := client.Open(ctx, "box")
	if err != nil {
		t.Fatal(err)
	}
	if out, r := c.sh(s, "cat /f /etc/passwd 2>/dev/null; mkdir /new 2>/dev/null || echo there"); out != "kept\nthere" || !r.Restarted {
		t.Errorf("%q, %+v", out, r)
	}
	if d, err := client.Diff(ctx, "box"); err != nil || len(d.Changes) < 3 {
		t.Errorf("%+v, %v", d, err)
	}
	if list, _ := os.ReadDir(image); len(list) != 2 {
		t.Errorf("the image has %v", list)
	}
}

// TestKeptApart: no sandbox may get write access to the directory of the others.
func TestKeptApart(t *testing.T) {
	c := newCorner(t)
	client := c.connect()
	defer client.Close()
	if err := os.Mkdir(c.dir+"/w", 0o755); err != nil {
		t.Fatal(err)
	}
	s := c.create(client, runner.Spec{Workspace: c.dir + "/w"})
	for _, dir := range []string{c.dir + "/s", c.dir, "/var/tmp", c.dir + "/w/../s"} {
		for _, spec := range []runner.Spec{{Out: dir}, {Out: t.TempDir(), Workspace: dir}} {
			if _, err := client.Create(context.Background(), spec); code(err) != ipc.CodeInvalid {
				t.Errorf("%+v, beside %s: %v", spec, s.ID, err)
			}
		}
	}
}

// TestStateApart: no sandbox gets demesne's own directory, neither for reading nor before it exists. There are the key
// of stored secrets, the server's token and what later runs obey.
func TestStateApart(t *testing.T) {
	c := newCorner(t)
	home := c.dir + "/home"
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	client := c.connect()
	defer client.Close()
	for _, dir := range []string{home + "/project", home + "/.demesne/out/run"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := c.dir + "/link"
	if err := os.Symlink(home, link); err != nil {
		t.Fatal(err)
	}
	specs := func(dir string) []runner.Spec {
		return []runner.Spec{
			{Inputs: []runner.Input{{Path: dir, Name: "x"}}}, {Workspace: dir}, {Out: dir}, {Rootfs: &runner.Rootfs{Dir: dir}},
			{Mounts: []runner.Mount{{Source: dir, Target: "/x", ReadOnly: true}}}, {Mounts: []runner.Mount{{Source: dir, Target: "/x"}}},
		}
	}
	for _, dir := range []string{home, home + "/.demesne", link, link + "/.demesne"} {
		for _, spec := range specs(dir) {
			if spec.Out == "" {
				spec.Out = t.TempDir()
			}
			if _, err := client.Create(context.Background(), spec); code(err) != ipc.CodeInvalid || !strings.Contains(err.Error(), "demesne's own files") {
				t.Errorf("%+v: %v", spec, err)
			}
		}
	}
	config := home + "/.config"
	if err := os.MkdirAll(config, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(context.Background(), runner.Spec{Out: t.TempDir(), Workspace: config}); code(err) != ipc.CodeInvalid {
		t.Errorf("the configuration in a workspace: %v", err)
	}
	c.create(client, runner.Spec{Out: home + "/.demesne/out/run", Workspace: home + "/project", Inputs: []runner.Input{{Path: config, Name: "x"}}})
}
