package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// badInput lists invalid command lines, and the words that the error must contain. %D is the box's directory.
var badInput = []struct {
	name string
	args string // split at blanks
	says string
}{
	{"image", "--image nosuch -- true", "nosuch"},
	{"image path", "--image ../host -- true", "../host"},
	{"image like a flag", "--image -o -- true", "-o"},
	{"flag", "--nosuch -- true", "--nosuch"},
	{"short flag", "-Z -- true", "-Z"},
	{"flag without value", "--image", "--image"},
	{"no command", "", "command"},
	{"no command after --", "--", "command"},
	{"user", "--user nosuch -- true", "nosuch"},
	{"user negative", "--user -1 -- true", "-1"},
	{"user huge", "--user 4294967296 -- true", "4294967296"},
	{"user trailing", "--user 1:2:3 -- true", "1:2:3"},
	{"user unmapped", "--user 4000000 -- true", "4000000"},
	{"size", "--memory lots -- true", "lots"},
	{"size negative", "--memory -5m -- true", "-5m"},
	{"size overflow", "--memory 99999999999t -- true", "99999999999t"},
	{"memory too small", "--memory 4k -- true", "4k"},
	{"pids", "--pids zero -- true", "zero"},
	{"pids too few", "--pids 0 -- true", "0"},
	{"cpus", "--cpus fast -- true", "fast"},
	{"cpus nan", "--cpus NaN -- true", "NaN"},
	{"cpus negative", "--cpus -1 -- true", "-1"},
	{"disk too small", "--disk 1 -- true", "1"},
	{"timeout", "--timeout soon -- true", "soon"},
	{"timeout negative", "--timeout -5s -- true", "-5s"},
	{"require", "--require most -- true", "most"},
	{"name", "--name a/b -- true", "a/b"},
	{"name dots", "--name .. -- true", ".."},
	{"env empty name", "--env =x -- true", "=x"},
	{"env bad name", "--env A-B=x -- true", "A-B"},
	{"env digit", "--env 1A=x -- true", "1A"},
	{"env not set", "--env NOSUCH_HERE -- true", "NOSUCH_HERE"},
	{"workdir relative", "--workdir tmp -- true", "tmp"},
	{"workdir missing", "--workdir /nosuch -- true", "/nosuch"},
	{"workdir file", "--workdir /etc/passwd -- true", "/etc/passwd"},
	{"input missing", "--in %D/missing -- true", "%D/missing"},
	{"input dangling", "--in %D/dangling -- true", "%D/dangling"},
	{"input fifo", "--in %D/fifo -- true", "%D/fifo"},
	{"input socket", "--in %D/socket -- true", "%D/socket"},
	{"input device", "--in /dev/null -- true", "/dev/null"},
	{"input collides", "--in %D/dir --in %D/other/dir -- true", "dir"},
	{"input named twice", "--in %D/dir:x --in %D/file:x -- true", "x"},
	{"input name up", "--in %D/dir:.. -- true", ".."},
	{"input name dot", "--in %D/dir:. -- true", "."},
	{"input name nested", "--in %D/dir:a/b -- true", "a/b"},
	{"input empty name", "--in %D/dir: -- true", "%D/dir:"},
	{"input loop", "--in %D/loop -- true", "%D/loop"},
	{"input unreadable parent", "--in %D/file/x -- true", "%D/file/x"},
	{"out is a file", "--out %D/file -- true", "%D/file"},
	{"out below a file", "--out %D/file/x -- true", "%D/file/x"},
	{"out dangling", "--out %D/dangling -- true", "%D/dangling"},
	{"out is /", "--out / -- true", "/"},
	{"out in proc", "--out /proc/nosuch -- true", "/proc/nosuch"},
	{"workspace missing", "--workspace %D/missing -- true", "%D/missing"},
	{"workspace is a file", "--workspace %D/file -- true", "%D/file"},
	{"json to nowhere", "--json=%D/missing/f -- true", "%D/missing/f"},
}

func TestBadInput(t *testing.T) {
	b := newBox(t)
	prepareBadInput(b)
	b.demesne("images") // creates the store, as looking up a name does
	before := tree(b.dir)
	for _, c := range badInput {
		t.Run(c.name, func(t *testing.T) {
			args := strings.Fields(strings.ReplaceAll(c.args, "%D", b.dir))
			b.refused(t, strings.ReplaceAll(c.says, "%D", b.dir), append([]string{"run"}, args...)...)
			if after := tree(b.dir); !slices.Equal(before, after) {
				t.Errorf("half-made: %q", after)
			}
		})
	}
}

func prepareBadInput(b *box) {
	b.mkdir("dir")
	b.mkdir("other/dir")
	b.file("file", "x", 0o644)
	os.Symlink(b.dir+"/nowhere", b.dir+"/dangling")
	os.Symlink(b.dir+"/loop", b.dir+"/loop")
	unix.Mkfifo(b.dir+"/fifo", 0o644)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: b.dir + "/socket"})
		unix.Close(fd)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// refused checks that the command exits with 125 and prints nothing on stdout. It prints one line
// "demesne: VERB: …" on stderr, followed by at most one hint.
func (b *box) refused(t *testing.T, says string, args ...string) {
	t.Helper()
	r := b.demesne(args...)
	line, rest, _ := strings.Cut(r.stderr, "\n")
	switch {
	case r.code != 125:
		t.Errorf("exit %d, want 125; stderr %q", r.code, r.stderr)
	case r.stdout != "":
		t.Errorf("stdout: %q", r.stdout)
	case !strings.HasPrefix(line, "demesne: "+args[0]+": "):
		t.Errorf("stderr starts %q", line)
	case !strings.Contains(line, says):
		t.Errorf("stderr says %q, nothing of %q", line, says)
	case rest != "" && !(strings.HasPrefix(rest, "hint: ") && strings.Count(rest, "\n") == 1):
		t.Errorf("after the line: %q", rest)
	}
}

// tree lists the files in a box, except those that its runner keeps.
func tree(dir string) (all []string) {
	filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		if rel == "r" || rel == "h/.demesne/run" {
			return filepath.SkipDir
		}
		if rel != "h/.demesne" && rel != "h/.demesne/out" {
			all = append(all, rel)
		}
		return nil
	})
	return all
}

// TestBadInputUnwritableOut checks that an unwritable directory is refused before any file is made.
func TestBadInputUnwritableOut(t *testing.T) {
	b := newBox(t)
	if os.Getuid() == 0 {
		b.as(54321)
	}
	dir := filepath.Join(b.dir, "theirs")
	os.Mkdir(dir, 0o755)
	os.Chmod(dir, 0o555)
	b.refused(t, dir, "run", "--out", dir, "--", "true")
	b.refused(t, dir, "run", "--out", dir+"/new", "--", "true")
	b.refused(t, dir, "run", "--workspace", dir, "--", "true")
}

// TestBadInputFullDisk checks that a full disk is reported, and that no partial files remain.
func TestBadInputFullDisk(t *testing.T) {
	b := newBox(t)
	// The script runs in a mount namespace of its own, with a full tmpfs as HOME and run directory.
	script := `set -e; mount -t tmpfs -o size=64k,nr_inodes=40 full "$HOME"; mkdir "$HOME/r"; chmod 755 "$HOME" "$HOME/r"; export XDG_RUNTIME_DIR="$HOME/r"
		i=0; while true > "$HOME/f$i"; do i=$((i+1)); done 2>/dev/null || true
		set +e; "$0" run -- true; echo "exit $?"; ls -A "$HOME" | grep -v '^f[0-9]' | sort | tr '\n' ' '`
	flags := []string{"-m", "--propagation", "private"}
	if os.Getuid() != 0 {
		flags = []string{"-rm"}
	}
	r := b.finish(b.command(program(t, "unshare"), append(flags, "sh", "-c", script, bin+"/demesne")...))
	if !strings.Contains(r.stdout, "exit 125") || !strings.HasPrefix(r.stderr, "demesne: run: ") || strings.Contains(r.stdout, ".demesne") {
		t.Errorf("on a full disk: %+v", r)
	}
}

// TestEscapeP16Arguments checks that values of arguments are never taken as options, paths or lines of another
// kind (P16).
func TestEscapeP16Arguments(t *testing.T) {
	b := newBox(t)
	b.file("-o", "dash\n", 0o644)
	if got := b.sh("cat /in/-o", "--in", "-o"); got != "dash\n" {
		t.Errorf("an input called -o: %q", got)
	}
	for _, c := range []struct{ args []string }{
		{[]string{"--env", "A\nB=1"}}, {[]string{"--name", "a\nb"}}, {[]string{"--name", "-x"}}, {[]string{"--in", b.dir + ":a\nb"}},
		{[]string{"--image", "host\x1b[2J"}}, {[]string{"--workdir", "\n"}},
	} {
		b.refused(t, "", append(append([]string{"run"}, c.args...), "--", "true")...)
	}
	r := b.demesne("run", "--env", "A=one\nB=two", "--", "sh", "-c", `printf %s "$A"; printf %s "$B"`)
	if r.stdout != "one\nB=two" {
		t.Errorf("a newline in a value: %+v", r)
	}
}
