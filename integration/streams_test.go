package integration

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestStreamsBinary checks that every byte passes unchanged, in both directions at once.
func TestStreamsBinary(t *testing.T) {
	b := newBox(t)
	data := make([]byte, 64<<20)
	rand.New(rand.NewSource(1)).Read(data)
	cmd := b.command("demesne", "run", "-i", "--", "tee", "/dev/stderr")
	cmd.Stdin = bytes.NewReader(data)
	out, errs := sha256.New(), sha256.New()
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	want := sha256.Sum256(data)
	if !bytes.Equal(out.Sum(nil), want[:]) || !bytes.Equal(errs.Sum(nil), want[:]) {
		t.Error("64 MiB through stdin, stdout and stderr came out different")
	}
}

// TestStreamsGigabyteIn checks that cat 1 GiB | demesne run -i -- wc -c counts every byte.
func TestStreamsGigabyteIn(t *testing.T) {
	b := newBox(t)
	cmd := b.command("demesne", "run", "-i", "--", "wc", "-c")
	cmd.Stdin = io.LimitReader(zeros{}, 1<<30)
	if r := b.finish(cmd); strings.TrimSpace(r.stdout) != "1073741824" {
		t.Errorf("wc -c: %+v", r)
	}
}

func TestStreamsGigabyteOut(t *testing.T) {
	b := newBox(t)
	var n count
	cmd := b.command("demesne", "run", "--", "head", "-c", "1073741824", "/dev/zero")
	cmd.Stdout = &n
	if r := b.finish(cmd); n != 1<<30 {
		t.Errorf("%d bytes came out: %+v", n, r)
	}
}

// TestStreamsFiles checks that a file as stdin or stdout works as with any program: offsets and appending.
func TestStreamsFiles(t *testing.T) {
	b := newBox(t)
	in, err := os.Open(b.file("in", "one\ntwo\n", 0o644))
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.OpenFile(b.file("log", "before\n", 0o644), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := b.command("demesne", "run", "-i", "--", "cat")
	cmd.Stdin, cmd.Stdout = in, out
	if r := b.finish(cmd); r.code != 0 {
		t.Errorf("cat: %+v", r)
	}
	if got, _ := os.ReadFile(out.Name()); string(got) != "before\none\ntwo\n" {
		t.Errorf("appended: %q", got)
	}
}

// TestStreamsNoStdin checks that without -i stdin is empty, and that demesne does not read the caller's stdin.
func TestStreamsNoStdin(t *testing.T) {
	b := newBox(t)
	cmd := b.command("/bin/sh", "-c", `"$0" run -- cat; read line; echo "kept $line"`, bin+"/demesne")
	cmd.Stdin = strings.NewReader("mine\n")
	if r := b.finish(cmd); r.stdout != "kept mine\n" {
		t.Errorf("stdin without -i: %+v", r)
	}
}

// TestStreamsClosedEarly checks that a reader that exits early ends the run like a pipeline: at once, with
// SIGPIPE.
func TestStreamsClosedEarly(t *testing.T) {
	b := newBox(t)
	for name, script := range map[string]string{
		"head":        `"$0" run -- yes | head -n 2; echo ${PIPESTATUS[0]}`,
		"both closed": `"$0" run -- sh -c 'yes; echo $? >&2' 2>&1 | head -n 2; echo ${PIPESTATUS[0]}`,
	} {
		r := b.finish(b.command("/bin/bash", "-c", script, bin+"/demesne"))
		if f := strings.Fields(r.stdout); len(f) != 3 || f[0] != "y" {
			t.Errorf("%s: %+v", name, r)
		} else if name == "head" && f[2] != "141" {
			t.Errorf("%s: exit %s, want 141 (SIGPIPE)", name, f[2])
		}
	}
	// The reverse: the command exits while the caller still writes.
	cmd := b.command("demesne", "run", "-i", "--", "head", "-c", "1")
	cmd.Stdin = zeros{}
	if r := b.finish(cmd); r.code != 0 || r.stdout != "\x00" {
		t.Errorf("command closed stdin: %+v", r)
	}
}

// TestStreamsHeldByChild checks that a run ends with its command, though a child keeps its stdout open. The child
// ends with the sandbox.
func TestStreamsHeldByChild(t *testing.T) {
	b := newBox(t)
	start := time.Now()
	if got := b.sh("sleep 1000 & echo done"); got != "done\n" {
		t.Errorf("stdout = %q", got)
	}
	if d := time.Since(start); d > time.Minute {
		t.Errorf("waited %v for a background child", d)
	}
}

// startUnread starts cmd with a pipe as its stdout, and returns the read end without reading from it.
func startUnread(t *testing.T, cmd *exec.Cmd) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	defer w.Close()
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestStreamsUnreadOutput checks that a caller that does not read cannot keep the sandbox from ending.
func TestStreamsUnreadOutput(t *testing.T) {
	b := newBox(t)
	cmd := b.command("demesne", "run", "--timeout", "2s", "--", "yes")
	r := startUnread(t, cmd)
	if _, err := r.Read(make([]byte, 1)); err != nil { // the command runs; nothing reads the rest
		t.Fatal(err)
	}
	me := cmd.Process.Pid
	eventually(t, "the sandbox to end without a reader", func() bool {
		for _, p := range descendants() {
			if p.pid != me && p.name == "yes" {
				return false
			}
		}
		return true
	})
	go io.Copy(io.Discard, r)
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 124 {
		t.Errorf("exit %d, want 124", code)
	}
}

// TestEscapeP15Output checks that large lines, NULs and escape sequences of a command pass as data (P15).
func TestEscapeP15Output(t *testing.T) {
	b := newBox(t)
	const hostile = "\x1b]52;c;AAAA\a\x1b[2J\x00\xff\xfe\r\n"
	r := b.demesne("run", "--", "printf", `\033]52;c;AAAA\007\033[2J\000\377\376\r\n`)
	if r.stdout != hostile {
		t.Errorf("stdout = %q", r.stdout)
	}
	// demesne's own messages contain no control characters, even where they quote the command.
	r = b.demesne("run", "--", "/no/\x1b]52;c;AAAA\a\nsecond")
	if r.code != 127 || strings.ContainsAny(r.stderr, "\x1b\a") || strings.Count(strings.TrimSpace(r.stderr), "\n") > 1 {
		t.Errorf("a hostile name in an error: %+v", r)
	}
	if r = b.demesne("run", "--json", "--", "printf", "%s", "\u009b2J\u202e\x7f"); !strings.Contains(r.stdout, `"stdout": "\u009b2J\u202e\u007f"`) {
		t.Errorf("hostile output in JSON: %+v", r)
	}
	id := strings.TrimSpace(b.demesne("create").stdout)
	b.demesne("exec", id, "--", "sh", "-c", "touch '/tmp/gpj.\u202eexe\u2028M fake'")
	if r = b.demesne("diff", id); r.stdout != "A /tmp/gpj.?exe M fake\n" {
		t.Errorf("a hostile name in a list: %+v", r)
	}
	b.demesne("rm", id)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type count int64

func (c *count) Write(p []byte) (int, error) { *c += count(len(p)); return len(p), nil }
