package client

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"demesne/runner"
	"demesne/runner/ipc"
)

// tree makes files below a new directory that the runner can reach. A name that ends with a slash is a directory, and
// "LINK -> TARGET" is a link.
func (c corner) tree(files ...string) string {
	c.Helper()
	dir, err := os.MkdirTemp(c.dir, "tree")
	if err != nil {
		c.Fatal(err)
	}
	os.Chmod(dir, 0o755)
	for _, name := range files {
		name, target, isLink := strings.Cut(name, " -> ")
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			c.Fatal(err)
		}
		switch {
		case isLink:
			err = os.Symlink(target, at)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(at, 0o755)
		default:
			err = os.WriteFile(at, []byte("host\n"), 0o644)
		}
		if err != nil {
			c.Fatal(err)
		}
	}
	return dir
}

// oneShot makes a one-shot sandbox.
func (c corner) oneShot(client *Client, spec runner.Spec) (*Sandbox, error) {
	if spec.Out == "" {
		spec.Out = c.tree()
	}
	return client.Create(context.Background(), spec)
}

// in runs a script in a new one-shot sandbox and returns its output. It fails if the sandbox cannot be made.
func (c corner) in(client *Client, spec runner.Spec, script string) string {
	c.Helper()
	s, err := c.oneShot(client, spec) // it ends with its command
	if err != nil {
		c.Fatal(err)
	}
	out, _ := c.sh(s, script)
	return out
}

// both calls test for a sandbox of the host's files and for one of an image with the same files.
func (c corner) both(test func(*testing.T, runner.Spec)) {
	c.Run("host", func(t *testing.T) { test(t, runner.Spec{}) })
	c.Run("image", func(t *testing.T) {
		test(t, runner.Spec{Image: "dir", Rootfs: &runner.Rootfs{Dir: imageDir(t, c)}})
	})
}

// imageDir makes the root of an image whose programs are the host's, mounted at /usr by the caller of both.
func imageDir(t *testing.T, c corner) string {
	t.Helper()
	return c.tree("etc/passwd", "usr/", "evil -> /usr", "tmp/", "bin -> usr/bin", "lib -> usr/lib", "lib64 -> usr/lib64", "home/")
}

// repository makes a writable directory with protected files, and their mounts: at its own path.
func (c corner) repository() (dir string, mounts []runner.Mount) {
	dir = c.tree(".git/hooks/pre-commit", ".git/config", ".git/refs/", ".envrc", "sub/deep/.vscode/tasks.json", "src/main.go")
	mounts = []runner.Mount{{Source: "/usr", Target: "/usr", ReadOnly: true}, {Source: dir, Target: dir}}
	for _, name := range []string{".git/hooks", ".git/config", ".envrc", "sub/deep/.vscode"} {
		mounts = append(mounts, runner.Mount{Source: dir + "/" + name, Target: dir + "/" + name, ReadOnly: true})
	}
	return dir, mounts
}

// TestMounts: a directory at its own path is writable, and what is mounted over parts of it is not.
func TestMounts(t *testing.T) {
	c := newCorner(t)
	client := c.connect()
	defer client.Close()
	agent := c.tree("task.md")
	c.both(func(t *testing.T, spec runner.Spec) {
		dir, mounts := c.repository()
		spec.Mounts = append(mounts, runner.Mount{Source: agent, Target: "/in/.agent", ReadOnly: true},
			runner.Mount{Source: agent, Target: "/in/previous-jobs/one", ReadOnly: true}, runner.Mount{Source: dir, Target: "/workspace"},
			runner.Mount{Source: agent + "/task.md", Target: "/home/new/file", ReadOnly: true}, runner.Mount{Source: dir, Target: "/root"})
		got := c.in(client, spec, `cd `+dir+` || exit 1; pwd; cat .git/config .envrc /in/.agent/task.md /in/previous-jobs/one/task.md /home/new/file /workspace/src/main.go /root/src/main.go
			stat -c '%a %n' /home/new /in/previous-jobs; echo new > src/new && echo made > .git/refs/x && mkdir .git/logs && mv src/new src/newer && cat /root/src/newer
			for f in .git/hooks/x .git/config .envrc sub/deep/.vscode/tasks.json /in/.agent/task.md /in/x /in/previous-jobs/x /home/new/file; do (echo evil >> $f) 2>/dev/null && echo "wrote $f"; done`)
		want := dir + strings.Repeat("\nhost", 7) + "\n755 /home/new\n755 /in/previous-jobs\nnew"
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		for name, want := range map[string]string{"src/newer": "new\n", ".git/refs/x": "made\n", ".envrc": "host\n"} {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || string(b) != want {
				t.Errorf("%s: %q, %v", name, b, err)
			}
		}
	})
}

// attacks tries to get rid of a protection, and prints each command that worked.
const attacks = `cd $D || exit 1; r() { perl -e 'rename($ARGV[0], $ARGV[1]) or exit 1' "$@"; }
	x() { perl -e 'exit(syscall(316, -100, $ARGV[0], -100, $ARGV[1], 2) == 0 ? 0 : 1)' "$@"; }
	exec 7<.; mkdir -p evil/hooks evil/deep/.vscode; echo evil > evil/hooks/pre-commit; echo evil > evil/f; ln -s evil link
	for a in 'r .git .git2' 'r .git/hooks .git/h2' 'r evil .git' 'r evil/hooks .git/hooks' 'x evil .git' 'x evil/hooks .git/hooks' 'r .envrc e2' 'r evil/f .envrc' 'x evil/f .envrc' 'r evil/f .git/config' \
		'rm .envrc' 'rm -rf .git/hooks/*' 'rmdir .git/hooks' 'ln -f evil/f .envrc' 'ln .envrc h && echo evil > h' 'ln -sfn evil .git/hooks' 'r sub s2' 'r sub/deep sub/d2' 'x sub evil' 'x sub/deep evil/deep' 'r sub/deep/.vscode v' \
		'umount .envrc' 'umount -l .git/hooks' 'umount -l .git' 'umount -l .' 'mount --bind evil .git' 'mount -o remount,rw,bind .git/hooks' 'mount --move .git evil' 'unshare -Ur true' 'unshare -Urm umount -l .git/hooks' \
		'chmod 777 .git/hooks' 'chmod u+w .envrc && echo evil > .envrc' 'truncate -s0 .envrc' 'touch .git/hooks/new' 'cp evil/f .git/hooks/pre-commit' 'cd /proc/self/fd/7 && r .git g' 'echo evil > /proc/self/cwd/.envrc' \
		'echo evil > /proc/self/root$D/.git/config' 'echo evil > ../$(basename $D)/.envrc' 'r ../$(basename $D) ../other' 'setfattr -n user.x -v y .envrc'; do
		(eval "$a") >/dev/null 2>&1 && echo "worked: $a"; done; cat .envrc .git/config .git/hooks/pre-commit`

// TestEscapeF6MountsStay tries to replace what the host would execute: by writing, by renaming it or a directory above
// it, and by unmounting (F5, F6).
func TestEscapeF6MountsStay(t *testing.T) {
	c := newCorner(t)
	client := c.connect()
	defer client.Close()
	c.both(func(t *testing.T, spec runner.Spec) {
		for _, user := range []*runner.User{nil, {UID: 0}} {
			dir, mounts := c.repository()
			spec.Mounts, spec.User = mounts, user
			got := c.in(client, spec, "D="+dir+"\n"+attacks)
			if got != "host\nhost\nhost" {
				t.Errorf("user %+v: %s", user, got)
			}
			for _, name := range []string{".envrc", ".git/config", ".git/hooks/pre-commit", "sub/deep/.vscode/tasks.json"} {
				if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != "host\n" {
					t.Errorf("the host has %q in %s: %v", b, name, err)
				}
			}
			if list, _ := os.ReadDir(dir + "/.git/hooks"); len(list) != 1 {
				t.Errorf("hooks: %v", list)
			}
		}
	})
}

// TestEscapeF2MountPlaces refuses mounts through links of the image or of an earlier sandbox, and mount points that
// would have to be made on the host (F2, F3).
func TestEscapeF2MountPlaces(t *testing.T) {
	c := newCorner(t)
	client := c.connect()
	defer client.Close()
	dir := c.tree("file", "d/", "away -> /etc", "filelink -> file", "loop -> loop")
	from := c.tree("f", "link -> f", "dirlink -> .")
	image := runner.Spec{Image: "dir", Rootfs: &runner.Rootfs{Dir: imageDir(t, c)}}
	w := runner.Mount{Source: dir, Target: "/w"}
	for _, row := range []struct {
		spec   runner.Spec
		mount  runner.Mount
		reason string
	}{
		{image, runner.Mount{Source: from, Target: "/evil/x"}, "too many levels"},
		{image, runner.Mount{Source: from, Target: "/evil"}, "too many levels"},
		{image, runner.Mount{Source: from, Target: "/etc/passwd/x"}, "not a directory"},
		{image, runner.Mount{Source: from, Target: "/etc/passwd"}, "not a directory"},
		{image, runner.Mount{Source: from + "/f", Target: "/etc", ReadOnly: true}, "is a directory"},
		{runner.Spec{}, runner.Mount{Source: from, Target: "/bin/x"}, "too many levels"},
		{runner.Spec{}, runner.Mount{Source: from, Target: "/usr/demesne"}, "would have to be made"},
		{runner.Spec{}, runner.Mount{Source: from, Target: "/w/away/x"}, "too many levels"},
		{runner.Spec{}, runner.Mount{Source: from, Target: "/w/loop"}, "too many levels"},
		{runner.Spec{}, runner.Mount{Source: from + "/f", Target: "/w/filelink", ReadOnly: true}, "too many levels"},
		{runner.Spec{}, runner.Mount{Source: from, Target: "/w/new"}, "would have to be made"},
		{runner.Spec{}, runner.Mount{Source: from, Target: "/w/new/new"}, "would have to be made"},
		{runner.Spec{}, runner.Mount{Source: from + "/f", Target: "/w/new", ReadOnly: true}, "would have to be made"},
		{runner.Spec{}, runner.Mount{Source: from + "/f", Target: "/out/new", ReadOnly: true}, "would have to be made"},
		{runner.Spec{}, runner.Mount{Source: from, Target: "/w/../etc"}, "without . and .."},
		{runner.Spec{}, runner.Mount{Source: from, Target: "/proc/self"}, "belongs to demesne"},
		{runner.Spec{}, runner.Mount{Source: from, Target: "/dev"}, "belongs to demesne"},
		{runner.Spec{}, runner.Mount{Source: from, Target: "/"}, "belongs to demesne"},
		{runner.Spec{}, runner.Mount{Source: from + "/link", Target: "/x", ReadOnly: true}, "too many levels"},
		{runner.Spec{}, runner.Mount{Source: from + "/dirlink/f", Target: "/x", ReadOnly: true}, "too many levels"},
		{runner.Spec{}, runner.Mount{Source: from + "/f", Target: "/x"}, "only a directory"},
		{runner.Spec{}, runner.Mount{Source: from + "/none", Target: "/x"}, "no such file"},
		{runner.Spec{}, runner.Mount{Source: c.dir, Target: "/x", ReadOnly: true}, "run directory"},
		{runner.Spec{}, runner.Mount{Source: "", Target: "/x"}, "no source"},
		{runner.Spec{Nesting: true}, runner.Mount{Source: from, Target: "/w/d", ReadOnly: true}, "nesting"},
	} {
		row.spec.Mounts = []runner.Mount{w, row.mount}
		s, err := c.oneShot(client, row.spec)
		if err == nil {
			s.Remove(context.Background())
		}
		if err == nil || !strings.Contains(err.Error(), row.reason) {
			t.Errorf("%v: %v, want %q", row.mount, err, row.reason)
		}
	}
	list, _ := os.ReadDir(dir)
	if len(list) != 5 {
		t.Errorf("the host's directory now has %v", list)
	}
}

// TestMountsEgress refuses open egress beside a mount.
func TestMountsEgress(t *testing.T) {
	c := newCorner(t)
	client := c.connect()
	defer client.Close()
	for _, ro := range []bool{false, true} {
		_, err := c.oneShot(client, runner.Spec{Egress: &runner.Egress{Learn: true}, Mounts: []runner.Mount{{Source: c.tree(), Target: "/x", ReadOnly: ro}}})
		if code(err) != ipc.CodeInvalid || !strings.Contains(err.Error(), "mount") {
			t.Errorf("read-only %t: %v", ro, err)
		}
	}
}

// TestMountsRestart: a restarted sandbox and a fork have the same mounts.
func TestMountsRestart(t *testing.T) {
	c := newCorner(t)
	client := c.connect()
	defer client.Close()
	dir, mounts := c.repository()
	s := c.create(client, runner.Spec{Name: "m", Mounts: mounts[1:]})
	look := "D=" + dir + "\n" + attacks
	if got, _ := c.sh(s, look); got != "host\nhost\nhost" {
		t.Error(got)
	}
	c.sh(s, "rm -rf "+dir+"/evil "+dir+"/link /run/mount; echo kept > /home/kept; cd "+dir+" && echo x > src/x")
	diff, err := client.Diff(context.Background(), "m")
	if err != nil || len(diff.Changes) != 1 || string(diff.Changes[0].Path) != "/home/kept" {
		t.Errorf("diff: %+v, %v", diff, err)
	}
	if err := client.Stop(context.Background(), "m", 0); err != nil {
		t.Fatal(err)
	}
	if got, _ := c.sh(s, look+" /home/kept src/x"); got != "host\nhost\nhost\nkept\nx" {
		t.Errorf("restarted: %s", got)
	}
	c.sh(s, "rm -rf "+dir+"/evil "+dir+"/link")
	f, err := client.Fork(context.Background(), "m", "f", c.tree())
	if err != nil {
		t.Fatal(err)
	}
	fork, err := client.Open(context.Background(), f.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := c.sh(fork, look+" /home/kept"); got != "host\nhost\nhost\nkept" {
		t.Errorf("fork: %s", got)
	}
}

func owner(fi os.FileInfo) int { return int(fi.Sys().(*syscall.Stat_t).Uid) }
