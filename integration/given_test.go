package integration

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

// rights lists the files below a directory that give rights to others: set-id bits, capabilities, ACLs and inode
// flags.
func rights(t *testing.T, dir string) (found []string) {
	t.Helper()
	filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return nil
		}
		if st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
			found = append(found, fmt.Sprintf("%s has mode %o", path, st.Mode))
		}
		if int(st.Uid) != os.Getuid() {
			found = append(found, fmt.Sprintf("%s is of %d", path, st.Uid))
		}
		for _, key := range []string{"security.capability", "system.posix_acl_access", "system.posix_acl_default"} {
			if n, _ := unix.Lgetxattr(path, key, nil); n > 0 {
				found = append(found, path+" has "+key)
			}
		}
		return nil
	})
	return found
}

// makesRights creates one file of each kind in /out. It uses python3 for setxattr(2).
const makesRights = `
import os, struct
os.chdir("/out")
def acl(*entries): return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in entries)
me = 2**32 - 1
given = acl((1, 7, me), (2, 7, 0), (4, 5, me), (16, 7, me), (32, 7, me))
os.mkdir("d", 0o755)
for name in ("suid", "d/suid", "caps"): open(name, "w").close(); os.chmod(name, 0o755)
def attempt(what, *args):
    try: what(*args)
    except OSError as e: print(what.__name__, args[0], e)
for name in ("suid", "d/suid"): attempt(os.chmod, name, 0o6755)
attempt(os.setxattr, "caps", "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 7, 0, 0, 0))
attempt(os.setxattr, "d", "system.posix_acl_default", given)
attempt(os.setxattr, "d/suid", "system.posix_acl_access", given)
attempt(os.setxattr, ".", "system.posix_acl_default", given)
import fcntl
def setflags(path): fcntl.ioctl(os.open(path, os.O_RDONLY), 0x40086602, struct.pack("q", 0x40)) # FS_IOC_SETFLAGS, nodump
attempt(setflags, "caps")
print("made", flush=True)
`

// TestEscapeF22Out checks that no file that leaves a sandbox gives rights to others, at any depth, with or
// without --nesting (F22). Until the files are cleaned up, no other user may enter /out.
func TestEscapeF22Out(t *testing.T) {
	program(t, "python3")
	for _, flags := range [][]string{nil, {"--nesting"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			b := newBox(t)
			out := b.mkdir("o")
			args := append(append([]string{"run", "--out", out}, flags...), "--", "python3", "-c", makesRights+`
print(oct(os.stat("/out").st_mode & 0o777))`)
			r := b.demesne(args...)
			if len(flags) > 0 && !strings.HasSuffix(r.stdout, "made\n0o700\n") {
				t.Errorf("/out was not closed meanwhile: %+v", r)
			}
			if !strings.Contains(r.stdout, "setflags caps [Errno 1]") {
				t.Errorf("flags of inodes: %+v", r)
			}
			if found := rights(t, out); len(found) > 0 {
				t.Errorf("%s\n%+v", strings.Join(found, "\n"), r)
			}
			if st, err := os.Stat(out); err != nil || st.Mode().Perm() != 0o755 {
				t.Errorf("/out is %v afterwards, %v", st.Mode(), err)
			}
		})
	}
}

func TestEscapeF22Deep(t *testing.T) {
	b := newBox(t)
	out := b.mkdir("o")
	t.Cleanup(func() { exec.Command("rm", "-rf", out).Run() })
	const depth = 5000 // longer than a path, and more than the descriptors of a process on many machines
	r := b.demesne("run", "--nesting", "--out", out, "--", "python3", "-c", fmt.Sprintf(`
import os
os.chdir("/out")
for i in range(%d): os.mkdir("d"); os.chdir("d")
open("suid", "w").close(); os.chmod("suid", 0o4755); print(oct(os.stat("suid").st_mode))`, depth))
	if r.stdout != "0o104755\n" {
		t.Fatalf("%+v", r)
	}
	fd, err := unix.Open(out, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range depth {
		next, nerr := unix.Openat(fd, "d", unix.O_PATH|unix.O_DIRECTORY, 0)
		unix.Close(fd)
		if fd, err = next, nerr; err != nil {
			t.Fatal(err)
		}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstatat(fd, "suid", &st, 0); err != nil || st.Mode&0o7777 != 0o755 {
		t.Errorf("%d directories down: mode %o, %v\n%s", depth, st.Mode, err, r.stderr)
	}
}

// TestEscapeF22Killed checks that the reaper of a killed runner fixes the files in /out, restores its mode and
// ACL, and removes published sockets (F22, P28).
func TestEscapeF22Killed(t *testing.T) {
	program(t, "python3")
	for name, flags := range map[string][]string{"nesting": {"--nesting"}, "user": {"--user", "1000:1000"}, "persistent": nil} {
		t.Run(name, func(t *testing.T) {
			if name == "user" && !manyIDs(t) {
				return
			}
			b := newBox(t)
			out, sock := b.mkdir("o"), b.dir+"/s"
			var stdout strings.Builder
			flags = append(flags, "--out", out, "--publish", "unix:"+sock+":3000")
			script := makesRights + "\nimport time; time.sleep(1000)"
			args := append(append([]string{"run"}, flags...), "--", "python3", "-c", script)
			if name == "persistent" {
				b.must(append([]string{"create", "--name", "p", "--nesting"}, flags...)...)
				args = []string{"exec", "p", "--", "python3", "-c", script}
			}
			cmd := b.command("demesne", args...)
			said := &lineWriter{lines: make(chan string, 16), all: &stdout}
			cmd.Stdout = said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			said.until(t, "made")
			if found := rights(t, out); len(found) == 0 || !exists(sock) {
				t.Fatalf("nothing to take back: %s", stdout.String())
			}
			for _, pid := range runners(true) {
				syscall.Kill(pid, syscall.SIGKILL)
			}
			ended(t, cmd)
			eventually(t, "the reaper to end", func() bool { return len(descendants()) == 0 })
			if found := rights(t, out); len(found) > 0 || exists(sock) {
				t.Errorf("socket: %v; %s", exists(sock), strings.Join(found, "\n"))
			}
			if st, err := os.Stat(out); err != nil || st.Mode().Perm() != 0o755 {
				t.Errorf("/out is %v, %v", st.Mode(), err)
			}
			if name == "persistent" {
				b.must("rm", "p")
			}
		})
	}
}

// manyIDs reports whether sandboxes have more than one id on this machine.
func manyIDs(t *testing.T) bool {
	t.Helper()
	b := newBox(t)
	return strings.Count(b.sh("cat /proc/self/uid_map"), "\n") > 0 && b.demesne("run", "--user", "1000:1000", "--", "true").code == 0
}

// lineWriter passes on what is written to it, line by line.
type lineWriter struct {
	lines chan string
	all   *strings.Builder
	rest  string
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.all.Write(p)
	for w.rest += string(p); ; {
		line, rest, whole := strings.Cut(w.rest, "\n")
		if !whole {
			return len(p), nil
		}
		w.rest = rest
		w.lines <- line
	}
}

func (w *lineWriter) until(t *testing.T, want string) {
	t.Helper()
	eventually(t, want, func() bool {
		select {
		case line := <-w.lines:
			return line == want
		default:
			return false
		}
	})
}

// TestEscapeF23OthersInOut checks that files that another user writes into root's /out during a run keep their
// owner (F23). That includes images whose root has many ids.
func TestEscapeF23OthersInOut(t *testing.T) {
	if os.Getuid() != 0 {
		return // it takes two users
	}
	g := newGallery(t)
	g.push("busybox:1", v1.Config{}, g.busybox())
	b := g.box
	out := b.mkdir("o")
	if err := os.Chmod(out, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, image := range [][]string{nil, {"--image", g.reg.Ref("busybox:1")}} {
		cmd, stdout := b.started(append([]string{"--out", out}, image...), "touch /out/own; chown 33:33 /out/own 2>/dev/null; echo ready; while [ ! -e /out/theirs ]; do sleep 0.05; done")
		other := exec.Command("/bin/sh", "-c", "umask 0; echo x > "+out+"/theirs")
		other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
		if text, err := other.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		io.Copy(io.Discard, stdout)
		ended(t, cmd)
		for name, want := range map[string]uint32{"own": 0, "theirs": 1000} {
			var st unix.Stat_t
			if err := unix.Stat(out+"/"+name, &st); err != nil || st.Uid != want || st.Gid != want {
				t.Errorf("%v: %s belongs to %d:%d, %v", image, name, st.Uid, st.Gid, err)
			}
			os.Remove(out + "/" + name)
		}
	}
}

// TestEscapeF22Restarted checks a persistent sandbox that is restarted after its runner and reaper were killed
// together. Files that give rights from before the kill are cleaned up too (F22).
func TestEscapeF22Restarted(t *testing.T) {
	program(t, "python3")
	b := newBox(t)
	out := b.mkdir("o")
	b.must("create", "--name", "p", "--nesting", "--out", out)
	b.must("exec", "p", "--", "python3", "-c", makesRights)
	for _, pid := range append(runners(false), runners(true)...) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	eventually(t, "all of it to be gone", func() bool { return len(descendants()) == 0 })
	if len(rights(t, out)) == 0 {
		t.Fatal("the reaper was not killed: nothing is left to be settled")
	}
	if st, err := os.Stat(out); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("/out is %v until it is settled, %v", st.Mode(), err)
	}
	b.must("exec", "p", "--", "true")
	b.must("stop", "p")
	if found := rights(t, out); len(found) > 0 {
		t.Errorf("%s", strings.Join(found, "\n"))
	}
	b.must("rm", "p")
}

// TestEscapeF24SpecialInputs checks that a workload cannot write to fifos and sockets in a read-only input, at
// any depth (F24). It can use a socket given by --socket.
func TestEscapeF24SpecialInputs(t *testing.T) {
	b := newBox(t)
	program(t, "python3")
	dir := b.mkdir("i")
	for _, name := range []string{"pipe", "sub/sub/pipe"} {
		path := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		os.Chmod(path, 0o666)
	}
	for _, sock := range []string{dir + "/sub/sock", b.dir + "/named"} {
		l, err := net.Listen("unix", sock)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		os.Chmod(sock, 0o666)
	}
	b.file("i/sub/file", "text", 0o644)
	for _, flags := range [][]string{nil, {"--nesting"}} {
		got := b.demesne(append(append([]string{"run", "--in", dir + ":i", "--socket", b.dir + "/named:named"}, flags...), "--", "python3", "-c", `
import os, socket
def attempt(what, *args):
    try: what(*args); print("done")
    except OSError as e: print("refused")
attempt(os.open, "/in/i/pipe", os.O_RDWR | os.O_NONBLOCK)
attempt(os.open, "/in/i/sub/sub/pipe", os.O_RDWR | os.O_NONBLOCK)
attempt(socket.socket(socket.AF_UNIX).connect, "/in/i/sub/sock")
attempt(socket.socket(socket.AF_UNIX).connect, "/in/named")
print(open("/in/i/sub/file").read())`)...)
		if got.stdout != "refused\nrefused\nrefused\ndone\ntext\n" {
			t.Errorf("%q: %+v", flags, got)
		}
	}
}
