package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// over runs a command line of demesne with a list on stdin.
func (b *box) over(list string, args ...string) result {
	b.Helper()
	cmd := b.command("demesne", args...)
	cmd.Stdin = strings.NewReader(list)
	return b.finish(cmd)
}

// items returns the items of a job as demesne jobs prints them.
func (b *box) items(job string) (all []placedJob) {
	b.Helper()
	r := b.demesne("jobs", "--json", job)
	if err := json.Unmarshal([]byte(r.stdout), &all); err != nil {
		b.Fatalf("%v: %+v", err, r)
	}
	return all
}

// TestMap runs commands for lists on this machine: good and bad ones, and such as end in each way.
func TestMap(t *testing.T) {
	b := newBox(t)
	b.keepsJobs()
	t.Run("outcomes", func(t *testing.T) {
		r := b.over("a b\n'; id\n\n", "map", "--parallel", "3", "--", "sh", "-c", `printf "<%s>" "$1"; test "$1" != ""`, "x", "-{}-")
		if r.code != 0 || r.stdout != "<-a b-><-'; id-><-->" || !strings.HasSuffix(r.stderr, ": 3 items: 3 succeeded\n") {
			t.Errorf("%+v", r)
		}
		r = b.over("1\n2\n3", "map", "-c", `echo "$0" >&2; test "$0" != 2`)
		if r.code != 1 || r.stdout != "" || !strings.HasPrefix(r.stderr, "1\n2\n3\n") || !strings.HasSuffix(r.stderr, ": 3 items: 2 succeeded, 1 failed\n") {
			t.Errorf("%+v", r)
		}
		r = b.over("1\n2\n", "map", "--memory", "128m", "--in", tools+"/eat", "-c", `test "$0" = 1 || exec /in/eat anon`)
		if r.code != 125 || !strings.HasSuffix(r.stderr, ": 2 items: 1 succeeded, 1 died\n") || !strings.Contains(r.stderr, "out of memory") {
			t.Errorf("memory: %+v", r)
		}
		r = b.over("1\n2\n", "map", "--", "no-such-program")
		if r.code != 1 || !strings.Contains(r.stderr, "item 2: execute \"no-such-program\": not found") || !strings.HasSuffix(r.stderr, ": 2 items: 0 succeeded, 2 failed\n") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("output", func(t *testing.T) {
		dir := b.dir + "/o"
		if r := b.over("x\ny\n", "map", "--output", dir, "-c", `echo "$0"; echo "$0$0" >&2; echo f >/out/f`); r.code != 0 || r.stdout != "" {
			t.Errorf("%+v", r)
		}
		for name, want := range map[string]string{"1/stdout": "x\n", "2/stderr": "yy\n", "2/out/f": "f\n"} {
			if got, err := os.ReadFile(dir + "/" + name); string(got) != want {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
		if err := errors.Join(os.Remove(dir+"/1/stdout"), os.Symlink("/dev/full", dir+"/1/stdout")); err != nil {
			t.Fatal(err)
		}
		r := b.over("x\ny\n", "map", "--output", dir, "-c", `echo "$0"`)
		_, job, _ := strings.Cut(r.stderr, `"`)
		job, _, _ = strings.Cut(job, `"`)
		if said := b.demesne("logs", job+"/1").stderr; r.code != 125 || !strings.HasSuffix(r.stderr, ": 2 items: 1 succeeded, 1 died\n") || !strings.Contains(said, "write stdout: 2 bytes are lost") {
			t.Errorf("a full disk: %+v, %s", r, said)
		}
	})
	t.Run("refused", func(t *testing.T) {
		b.extra = append(b.extra, "TMPDIR="+b.mkdir("refused"))
		for _, c := range []struct {
			list, want string
			args       []string
		}{
			{"a\nb\x00\n", "line 2: has a NUL byte", []string{"--", "echo"}},
			{"a\n" + strings.Repeat("a", 1<<20), "line 2: 1048576 bytes are too long", []string{"--", "echo"}},
			{strings.Repeat("\n", 1_000_001), "more than 1000000 lines", []string{"--", "echo"}},
			{"a\n", "no command given\n", nil},
			{"", "no command given, and the list on stdin is empty\n", nil},
			{"a\n", "not a number from 1", []string{"--parallel", "0", "--", "echo"}},
			{"a\n", "flag --key: unknown", []string{"--key", "k", "--", "echo"}},
			{"a\n", "program from stdin", []string{"--language", "sh", "-"}},
		} {
			if r := b.over(c.list, append([]string{"map"}, c.args...)...); r.code != 125 || !strings.Contains(r.stderr, c.want) {
				t.Errorf("%q: %d, %.200s", c.want, r.code, r.stderr)
			}
		}
		if left := names(b.dir + "/refused"); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
		if r := b.over("", "map", "--", "echo"); r.code != 0 || r.stderr != "demesne: map: 0 items\n" {
			t.Errorf("%+v", r)
		}
		if left := b.demesne("jobs", "-q"); strings.Count(left.stdout, "\n") != 6 {
			t.Errorf("%+v", left)
		}
	})
	t.Run("jobs", func(t *testing.T) {
		list := strings.Repeat("sleep 1000\n", 99_999) + "true"
		r := b.over(list, "map", "--background", "-c", `echo up; $0`)
		job := strings.TrimSpace(r.stdout)
		eventually(t, "an item", func() bool { return b.demesne("logs", job+"/1").stdout == "up\n" })
		if r := b.demesne("cancel", job+"/1", job+"/7"); r.code != 0 {
			t.Errorf("%+v", r)
		}
		if r := b.demesne("wait", job+"/7"); r.code != 125 || !strings.Contains(r.stderr, "cancelled by a call of cli") {
			t.Errorf("%+v", r)
		}
		for _, id := range []string{"/0", "/01", "/100001", "/1/1", "/../x", "/"} {
			if r := b.demesne("wait", job+id); r.code != 125 || !strings.Contains(r.stderr, "unknown job") {
				t.Errorf("%q: %+v", id, r)
			}
		}
		if r := b.demesne("wait", "--timeout", "1", job+"/100000"); r.code != 124 {
			t.Errorf("%+v", r)
		}
		if r := b.demesne("cancel", job); r.code != 0 {
			t.Errorf("%+v", r)
		}
		if r := b.demesne("wait", job+"/1", job+"/50000", job+"/100000"); r.code != 125 || strings.Count(r.stderr, "cancelled by a call of cli") != 3 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("signal", func(t *testing.T) {
		cmd := b.command("demesne", "map", "-c", `echo up >&2; exec sleep "$0"`)
		cmd.Stdin = strings.NewReader(strings.Repeat("1000\n", 4))
		errs, err := cmd.StderrPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fscanln(errs, new(string))
		cmd.Process.Signal(syscall.SIGINT)
		if cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
			t.Errorf("%v", cmd.ProcessState)
		}
		if r := b.demesne("ls", "-q"); r.stdout != "" {
			t.Errorf("left %+v", r)
		}
	})
	t.Run("killed", func(t *testing.T) {
		r := b.over("1000\n0\n0\n", "map", "--parallel", "2", "--background", "-c", `sleep "$0"; echo done`)
		job := strings.TrimSpace(r.stdout)
		b.demesne("wait", job+"/3")
		for _, p := range descendants() {
			if strings.Contains(p.cmdline(), job) {
				syscall.Kill(p.pid, syscall.SIGKILL)
			}
		}
		eventually(t, "the end", func() bool { return b.demesne("wait", "--timeout", "1", job).code == 125 })
		if all := b.items(job); all[0].Status != "failed" || !strings.Contains(all[0].Message, "was killed") || all[2].Status != "succeeded" {
			t.Errorf("%+v", all)
		}
		eventually(t, "no sandbox", func() bool { return b.demesne("ls", "-q").stdout == "" })
	})
}
