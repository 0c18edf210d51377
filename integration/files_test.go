package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFilesInputs(t *testing.T) {
	b := newBox(t)
	file := b.file("data.csv", "a,b\n", 0o640)
	dir := filepath.Dir(b.file("tree/deep/er", "deep\n", 0o644))
	exe := b.file("tool.sh", "#!/bin/sh\necho tool\n", 0o755)
	odd := b.file("odd:name with space", "odd\n", 0o644)
	got := b.sh(`cat /in/data.csv /in/t/er; /in/tool.sh; cat "/in/odd:name with space" /in/renamed; ls /in | wc -l`,
		"--in", file, "--in", dir+":t", "--in", exe, "--in", odd, "--in", file+":renamed")
	if got != "a,b\ndeep\ntool\nodd\na,b\n5\n" {
		t.Errorf("inputs: %q", got)
	}
	// Paths are relative to the caller's directory, and may go through the caller's own links.
	os.Symlink(file, b.dir+"/link")
	if got := b.sh("cat /in/data.csv /in/link", "--in", "data.csv", "--in", "./link"); got != "a,b\na,b\n" {
		t.Errorf("relative: %q", got)
	}
	// Inputs are read-only, independent of their owner, and cannot be made writable.
	b.sh(`for c in 'echo x >> /in/data.csv' 'rm -f /in/data.csv' 'chmod 777 /in/data.csv' 'mv /in/tool.sh /in/x' \
		'touch /in/new' 'mkdir /in/t/new' 'truncate -s 0 /in/t/er' 'ln /in/t/er /in/t/er2' 'chown 0:0 /in/tool.sh && touch -d 2000-01-01 /in/tool.sh'; do
		if eval "$c" 2>/dev/null; then echo "worked: $c"; exit 1; fi; done`,
		"--in", file, "--in", exe, "--in", dir+":t")
	if text, _ := os.ReadFile(file); string(text) != "a,b\n" {
		t.Errorf("the host's file became %q", text)
	}
}

// TestFilesInputsByDescriptor checks that an input is bound by descriptor: later changes of its path have no
// effect (F13).
func TestFilesInputsByDescriptor(t *testing.T) {
	b := newBox(t)
	file := b.file("in/data", "first\n", 0o644)
	cmd, out := b.started([]string{"-i", "--in", filepath.Dir(file) + ":d"}, "echo ready; until test -e /in/d/go; do sleep 0.02; done; cat /in/d/data; ls /in/d")
	os.Rename(b.dir+"/in", b.dir+"/moved")
	b.file("in/data", "second\n", 0o644)
	b.file("moved/go", "", 0o644)
	line, _ := out.ReadString('\n')
	cmd.Wait()
	if line != "first\n" {
		t.Errorf("after the path was replaced /in/d/data says %q", line)
	}
}

// TestFilesInputsNoSetuid checks that setuid programs and devices below an input have no effect.
func TestFilesInputsNoSetuid(t *testing.T) {
	b := newBox(t)
	if raw, err := os.ReadFile("/usr/bin/id"); err != nil {
		t.Fatal(err)
	} else if err := os.WriteFile(b.dir+"/id", raw, 0o755); err != nil {
		t.Fatal(err)
	}
	os.Chmod(b.dir+"/id", 0o4755|os.ModeSetuid)
	got := b.sh(`grep ' /in/id ' /proc/self/mountinfo | grep -c nosuid; grep ' /in/id ' /proc/self/mountinfo | grep -c nodev`, "--in", b.dir+"/id")
	if got != "1\n1\n" {
		t.Errorf("nosuid, nodev on /in: %q", got)
	}
}

// TestFilesOut checks that output files belong to the caller and keep their mode, but are never setuid (F17).
func TestFilesOut(t *testing.T) {
	b := newBox(t)
	out := b.mkdir("o")
	b.sh(`umask 022; cd /out; echo a > plain; echo b > private; chmod 600 private; echo '#!/bin/sh' > prog; chmod 755 prog
		mkdir -p d/e; chmod 700 d/e; echo c > d/e/f; ln -s plain link; ln -s /etc/shadow outside; ln plain hard; mkfifo pipe; printf '\377' > "$(printf 'odd\377')"`,
		"--out", out)
	for name, mode := range map[string]os.FileMode{"plain": 0o644, "private": 0o600, "prog": 0o755, "d/e": 0o700 | os.ModeDir, "d/e/f": 0o644, "odd\xff": 0o644} {
		st, err := os.Lstat(filepath.Join(out, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if st.Mode() != mode {
			t.Errorf("%q has mode %v, want %v", name, st.Mode(), mode)
		}
	}
	owned(t, out, os.Getuid())
}

// owned checks that all files below dir belong to uid.
func owned(t *testing.T, dir string, uid int) {
	t.Helper()
	filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return nil
		}
		st, _ := os.Lstat(path)
		if st != nil && int(st.Sys().(*syscall.Stat_t).Uid) != uid {
			t.Errorf("%s belongs to %d, not to %d", path, st.Sys().(*syscall.Stat_t).Uid, uid)
		}
		return nil
	})
}

// TestEscapeF17SetuidOut checks that no setuid or setgid bit and no capability survives in /out or /workspace
// (F17).
func TestEscapeF17SetuidOut(t *testing.T) {
	b := newBox(t)
	out, work := b.mkdir("o"), b.mkdir("w")
	b.sh(`for d in /out /workspace; do cp /bin/sh $d/sh; chmod 6755 $d/sh; mkdir $d/dir; chmod 2777 $d/dir; touch $d/later; chown 7:7 $d/later 2>/dev/null
		setcap cap_setuid+ep $d/later 2>/dev/null; done; (sleep 0.2; chmod 4755 /out/later) & true`, "--out", out, "--workspace", work)
	for _, dir := range []string{out, work} {
		filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if err != nil {
				t.Fatal(err)
			}
			st, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			// A directory's setgid bit gives no rights, but files created below would not have the caller's
			// group.
			if st.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
				t.Errorf("%s is %v", path, st.Mode())
			}
			if n, _ := unix.Lgetxattr(path, "security.capability", nil); n > 0 {
				t.Errorf("%s has file capabilities", path)
			}
			return nil
		})
		owned(t, dir, os.Getuid())
	}
}

func TestFilesWorkspace(t *testing.T) {
	b := newBox(t)
	work := b.mkdir("w")
	b.file("w/old", "old\n", 0o644)
	if got := b.sh("cat old; echo new > made; rm old; pwd", "--workspace", work); got != "old\n/workspace\n" {
		t.Errorf("workspace: %q", got)
	}
	if text, _ := os.ReadFile(work + "/made"); string(text) != "new\n" {
		t.Errorf("made: %q", text)
	}
	if _, err := os.Lstat(work + "/old"); err == nil {
		t.Error("what was removed inside is still there")
	}
	owned(t, work, os.Getuid())
}

// TestFilesWatched checks that inotify in the sandbox reports changes made to a --workspace from outside.
func TestFilesWatched(t *testing.T) {
	b := newBox(t)
	program(t, "python3")
	work := b.mkdir("w")
	var out strings.Builder
	cmd := b.command("demesne", "run", "--workspace", work, "--", "python3", "-c", `
import ctypes, os
libc = ctypes.CDLL(None); fd = libc.inotify_init(); libc.inotify_add_watch(fd, b"/workspace", 0x80) # IN_MOVED_TO
os.mkdir("watched"); print(os.read(fd, 300)[16:].rstrip(b"\0").decode())`)
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a watch", func() bool { return exists(work + "/watched") })
	if err := os.Rename(b.file("new", "", 0o644), work+"/new"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || out.String() != "new\n" {
		t.Errorf("%v: %q", err, out.String())
	}
}

// TestFilesOutFresh checks that without --out there is a new directory, which the result names.
func TestFilesOutFresh(t *testing.T) {
	b := newBox(t)
	first, _ := b.report(nil, "sh", "-c", "echo hello > /out/greeting.txt")
	second, _ := b.report(nil, "true")
	if text, err := os.ReadFile(first.Out + "/greeting.txt"); string(text) != "hello\n" {
		t.Errorf("%s: %q, %v", first.Out, text, err)
	}
	if filepath.Dir(first.Out) != b.out || first.Out == second.Out {
		t.Errorf("outputs %q and %q, want two fresh ones in %s", first.Out, second.Out, b.out)
	}
	// An empty output directory is removed, unless the caller or the result named it.
	before, named := names(b.out), b.dir+"/named"
	b.sh("true")
	b.sh("true", "--out", named)
	if after := names(b.out); !slices.Equal(before, after) || !exists(named) {
		t.Errorf("%q became %q; named: %t", before, after, exists(named))
	}
	b.sh("touch /out/f")
	if after := names(b.out); len(after) != len(before)+1 {
		t.Errorf("%q became %q after one that left a file", before, after)
	}
	cmd := b.command("demesne", "run", "--json", "--", "true")
	cmd.Env = append(cmd.Env, "DEMESNE_OUTPUT_ROOT="+b.mkdir("root"))
	if p := b.parse(b.finish(cmd)); filepath.Dir(p.Out) != b.dir+"/root" {
		t.Errorf("$DEMESNE_OUTPUT_ROOT: %s", p.Out)
	}
}

// TestEscapeF2LinksInOut checks that a link made in a sandbox is never followed outside (F2). Neither demesne,
// when it fixes ownership of /out, nor the next run that uses the directory follows it.
func TestEscapeF2LinksInOut(t *testing.T) {
	b := newBox(t)
	out := b.mkdir("o")
	victim := b.file("victim/secret", canary+"\n", 0o600)
	os.Chmod(filepath.Dir(victim), 0o700)
	b.sh(`ln -s `+victim+` /out/file; ln -s `+filepath.Dir(victim)+` /out/dir; ln -s / /out/root; ln -s ../../.. /out/up
		mkdir /out/d && ln -s /proc/self/root /out/d/r; ln -s `+victim+` /workspace/w`, "--out", out)
	if st, _ := os.Stat(victim); st.Mode() != 0o600 {
		t.Errorf("the victim's mode became %v", st.Mode())
	}
	r := b.demesne("run", "--out", out, "--", "sh", "-c", "cat /out/file /out/dir/secret /out/root"+victim+" /out/up"+victim+" /out/d/r"+victim)
	if strings.Contains(r.stdout, canary) {
		t.Error("a link left in /out leads to the host's file")
	}
	// An --out path through the caller's own link is the caller's choice. The sandbox cannot replace that path.
	b.sh("rm -rf /out/* /out/.[!.]*; rmdir /out || true; ln -s /etc /out || true", "--out", out)
	if st, err := os.Lstat(out); err != nil || !st.IsDir() {
		t.Errorf("/out was replaced: %v %v", st, err)
	}
}
