package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestMCPScript(t *testing.T) {
	b := newBox(t)
	c := b.mcp()
	in := b.file("data/in.txt", "input\n", 0o644)
	for _, step := range []struct {
		name           string
		args           args
		code           string
		stdout, stderr string
	}{
		{"both streams", args{"command": "echo out; echo err >&2; exit 3"}, "3", "out\n", "err\n"},
		{"in /out", args{"command": "pwd; touch f; ls"}, "0", "/out\nf\n", ""},
		{"comment and parenthesis", args{"command": "echo ')' # ("}, "0", ")\n", ""},
		{"stdin", args{"command": "cat", "stdin": "fed"}, "0", "fed", ""},
		{"unread stdin", args{"command": "true", "stdin": strings.Repeat("x", 1<<20)}, "0", "", ""},
		{"environment", args{"command": "echo $A$B", "env": args{"A": "x", "B": 2}}, "0", "x2\n", ""},
		{"directory", args{"command": "pwd", "cwd": "/tmp"}, "0", "/tmp\n", ""},
		{"inputs", args{"command": "cat /in/in.txt /in/data/in.txt", "files": []string{in}, "directories": []string{filepath.Dir(in)}}, "0", "input\ninput\n", ""},
		{"not UTF-8", args{"command": `printf '\377x'`}, "0", "\uFFFDx", ""},
		{"time", args{"command": "sleep 3222", "timeout_seconds": "0.3"}, "124", "", ""},
		{"limits", args{"command": "head -c 3000000 /dev/zero > /tmp/f || echo full", "limits": args{"disk": "1048576"}}, "0", "full\n", "head: error writing 'standard output': No space left on device\n"},
		{"no environment of the host", args{"command": "env | grep -c " + canary + "; true"}, "0", "0\n", ""},
	} {
		r := c.must("sandbox_script", step.args)
		if r.field("exit_code") != step.code || r.field("stdout") != step.stdout || r.field("stderr") != step.stderr {
			t.Errorf("%s: %+v", step.name, r.Fields)
		}
	}
}

// TestMCPScriptOutputs checks that a command's output is in output_dir, and that the result has a receipt.
func TestMCPScriptOutputs(t *testing.T) {
	b := newBox(t)
	c := b.mcp()
	r := c.must("sandbox_script", args{"command": "echo o; echo e >&2; echo made > made"})
	dir := r.field("output_dir")
	for name, want := range map[string]string{"stdout.log": "o\n", "stderr.log": "e\n", "made": "made\n"} {
		if got := readFile(t, filepath.Join(dir, name)); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	if dir != filepath.Join(b.out, r.field("job_id")) {
		t.Errorf("output_dir %q, job_id %q", dir, r.field("job_id"))
	}
	if receipt := r.receipt(); receipt["level"] == nil || receipt["image"] != "host" || receipt["network"] == nil {
		t.Errorf("receipt: %v", receipt)
	}
}

// TestMCPManifest checks that the manifest of a run shows later changes to its output.
func TestMCPManifest(t *testing.T) {
	b := newBox(t)
	c := b.mcp()
	r := c.must("sandbox_script", args{"command": "mkdir sub; echo made > sub/made; ln -s /etc/passwd link; ln -s ../.manifests up; test -e ../.manifests || echo out of reach"})
	if r.field("stdout") != "out of reach\n" {
		t.Errorf("%+v", r.Fields)
	}
	dir := r.field("output_dir")
	if want := filepath.Join(b.out, ".manifests", filepath.Base(dir)+".json"); r.meta("manifest") != want || !strings.Contains(readFile(t, want), `"path": "sub/made"`) {
		t.Errorf("manifest %q, want %q", r.meta("manifest"), want)
	}
	if r := b.demesne("manifest", "verify", dir); r.code != 0 || r.stdout != "5 files are unchanged\n" {
		t.Errorf("at first: %+v", r)
	}
	// A sandbox that gets the directory again can change the files, but not their manifest.
	c.must("sandbox_script", args{"command": "ls -a /in; cat /in/*/sub/made", "directories": []string{dir}})
	b.sh("cd /out; echo other > sub/made; rm stdout.log; touch new", "--out", dir)
	if r := b.demesne("manifest", "verify", dir); r.code != 1 || r.stdout != "missing \"stdout.log\"\nchanged \"sub/made\"\nnew \"new\"\n" {
		t.Errorf("afterwards: %+v", r)
	}
	job := c.must("sandbox_script", args{"command": "echo made > made", "background": true}).field("job_id")
	if r := c.must("sandbox_wait", args{"job_id": job}); !strings.Contains(readFile(t, fmt.Sprint(r.meta("manifest"))), `"path": "made"`) {
		t.Errorf("a job: %+v", r.Fields)
	}
}

// TestMCPScriptRefused checks that calls that may not run are refused with a reason, and create no files.
func TestMCPScriptRefused(t *testing.T) {
	b := newBox(t)
	b.extra = append(b.extra, "DEMESNE_ALLOWED_PATHS="+b.mkdir("allowed"))
	outside := b.file("outside.txt", canary, 0o644)
	if err := os.Symlink(outside, filepath.Join(b.dir, "allowed/link")); err != nil {
		t.Fatal(err)
	}
	c := b.mcp()
	for _, step := range []struct {
		args args
		want string
	}{
		{args{}, `required argument "command" not found`},
		{args{"command": "x", "image": "zzz"}, `image "zzz" is not in the allowlist (`},
		{args{"command": "x", "image": "dir:/"}, `image "dir:/" is not in the allowlist (`},
		{args{"command": "x", "egress": "open"}, `egress 'open' is not permitted; use sandbox_research for unrestricted egress`},
		{args{"command": "x", "files": []string{outside}}, `mount path ` + outside + ` is not within DEMESNE_ALLOWED_PATHS`},
		{args{"command": "x", "files": []string{b.dir + "/allowed/link"}}, `is not within DEMESNE_ALLOWED_PATHS`},
		{args{"command": "x", "cwd": "/nowhere"}, `/nowhere`},
		{args{"command": "x", "name": "bad name"}, `create sandbox "bad name": name may have letters`},
		{args{"command": "x", "limits": args{"memory": "512m"}}, `limits.memory must be a positive number`},
	} {
		if r := c.call("sandbox_script", step.args); !r.IsError || !strings.Contains(r.Text, step.want) || strings.Contains(r.Text, "keep std") {
			t.Errorf("%v: %+v, want %q", step.args, r, step.want)
		}
	}
	for _, dir := range names(b.out) {
		if left := names(filepath.Join(b.out, dir)); len(left) > 2 { // the last command's empty logs
			t.Errorf("refused, and %s has %v", dir, left)
		}
	}
}

// TestMCPPlanted checks links and special files that a sandbox plants in the place of its logs. demesne moves
// them aside, and neither follows nor deletes them.
func TestMCPPlanted(t *testing.T) {
	b := newBox(t)
	c := b.mcp()
	target := b.file("target", canary, 0o666)
	for _, plant := range []string{
		"ln -s " + target + " stdout.log", "ln -s /dev/full stdout.log", "mkdir stdout.log; touch stdout.log/x", "mkfifo stdout.log",
		"echo mine > stdout.log", "ln -s . stdout.log", "ln -s stdout.log stdout.log", "ln -s x stdout.log.1; ln -s " + target + " stdout.log",
		"rmdir /out; mv /out /tmp; ln -s " + b.dir + " stderr.log",
	} {
		r := c.must("sandbox_script", args{"command": plant + "; echo real"})
		dir := r.field("output_dir")
		path := filepath.Join(dir, "stdout.log")
		if st, err := os.Lstat(path); err != nil || !st.Mode().IsRegular() || readFile(t, path) != "real\n" {
			t.Errorf("%s: %v %v", plant, st, err)
		}
		if strings.Contains(plant, "stdout.log") {
			if _, err := os.Lstat(path + ".1"); err != nil {
				t.Errorf("%s: what the sandbox made is lost: %v", plant, names(dir))
			}
		}
	}
	if got := readFile(t, target); got != canary {
		t.Errorf("the target of a link is %q now", got)
	}
	if got := names(b.dir); fmt.Sprint(got) != "[h k r target]" {
		t.Errorf("beside the box: %v", got)
	}
}

// TestMCPOutputBounded checks that output larger than the server may become is counted to the byte and costs the server no memory.
func TestMCPOutputBounded(t *testing.T) {
	b := newBox(t)
	c := b.mcp()
	size := int64(160 << 20)
	r := c.must("sandbox_script", args{"command": fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; echo end; head -c 100000 /dev/zero | tr '\\0' e >&2", size)})
	if got := r.field("stdout_bytes"); got != fmt.Sprint(float64(size+4)) || r.field("stderr_bytes") != "100000" || r.Fields["stdout_truncated"] != true || r.Fields["stderr_truncated"] != true {
		t.Errorf("stdout_bytes %s, stderr_bytes %s", got, r.field("stderr_bytes"))
	}
	out := r.field("stdout")
	if !strings.HasPrefix(out, "xxx") || !strings.HasSuffix(out, "xxend\n") || len(out) > 24200 || !strings.Contains(out, r.field("output_dir")+"/stdout.log]\n") {
		t.Errorf("stdout: %d bytes, %.100q", len(out), out)
	}
	if errs := r.field("stderr"); !strings.HasPrefix(errs, "[stderr truncated to last 16384 bytes; full log in output_dir/stderr.log]\neee") {
		t.Errorf("stderr: %.100q", errs)
	}
	st, err := os.Stat(filepath.Join(r.field("output_dir"), "stdout.log"))
	if err != nil || st.Size() != size+4 {
		t.Errorf("stdout.log: %v %v", st, err)
	}
	if peak := statusKB(t, c.cmd.Process.Pid, "VmHWM"); peak > 64<<10 {
		t.Errorf("the server took %d KiB", peak)
	}
	eventually(t, "the server gives back what the answer took", func() bool {
		return statusKB(t, c.cmd.Process.Pid, "RssAnon") < 8<<10 // pages of the program itself are not the answer
	})
}

// TestMCPOutputUTF8 checks that truncation does not split a UTF-8 character.
func TestMCPOutputUTF8(t *testing.T) {
	b := newBox(t)
	c := b.mcp()
	r := c.must("sandbox_script", args{"command": "yes äöü | head -c 40001 >&2"})
	errs := r.field("stderr")
	if strings.Contains(strings.TrimSuffix(errs, "\uFFFD"), "\uFFFD") {
		t.Errorf("cut: %.120q … %q", errs, errs[len(errs)-10:])
	}
}

// TestMCPParallel makes 100 calls at once; all succeed, each with its own result.
func TestMCPParallel(t *testing.T) {
	b := newBox(t)
	c := b.mcp()
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			_, ch := c.start("sandbox_script", args{"command": fmt.Sprintf("echo %d; echo e%d >&2; echo %d > f; exit %d", i, i, i, i)})
			r := <-ch
			if r.field("exit_code") != fmt.Sprint(i) || r.field("stdout") != fmt.Sprintf("%d\n", i) || r.field("stderr") != fmt.Sprintf("e%d\n", i) {
				t.Errorf("script %d: %+v", i, r)
				return
			}
			if got, _ := os.ReadFile(filepath.Join(r.field("output_dir"), "f")); string(got) != fmt.Sprintf("%d\n", i) {
				t.Errorf("script %d: f is %q", i, got)
			}
		})
	}
	wg.Wait()
}

// TestMCPCancelled checks that notifications/cancelled ends all processes that the call started.
func TestMCPCancelled(t *testing.T) {
	b := newBox(t)
	b.extra = append(b.extra, "DEMESNE_POOL_SIZE=0") // the only PID 1 is the call's
	c := b.mcp()
	tree := "setsid sleep 3333 & (sleep 3333 & sleep 3333) & echo up; sleep 3333"
	for _, begun := range []func() bool{
		func() bool { return true }, func() bool { return len(named("demesne-init")) > 0 }, func() bool { return sleepers("3333") == 4 },
	} {
		id, _ := c.start("sandbox_script", args{"command": tree})
		eventually(t, "the call to come so far", begun)
		c.tell("notifications/cancelled", args{"requestId": id, "reason": "test"})
		eventually(t, "the sandbox to be gone", func() bool { return len(named("demesne-init")) == 0 })
	}
	box := c.must("sandbox_create", args{}).field("sandbox_id")
	c.must("sandbox_exec", args{"sandbox_id": box, "command": "(setsid sleep 3344 >/dev/null 2>&1 &)"})
	id, _ := c.start("sandbox_exec", args{"sandbox_id": box, "command": "(sleep 3333 & sleep 3333) & sleep 3333"})
	eventually(t, "the command to start", func() bool { return sleepers("3333") > 1 })
	c.tell("notifications/cancelled", args{"requestId": id})
	eventually(t, "the command to end", func() bool { return sleepers("3333") == 0 })
	eventually(t, "what an earlier call left running", func() bool { return sleepers("3344") == 1 })
	c.must("sandbox_destroy", args{"sandbox_id": box})
	if code := c.close(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// sleepers counts the descendants that sleep for that many seconds.
func sleepers(seconds string) (n int) {
	for _, p := range descendants() {
		if raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid)); string(raw) == "sleep\x00"+seconds+"\x00" {
			n++
		}
	}
	return n
}

// statusKB returns a line of /proc/PID/status that is in kB.
func statusKB(t testing.TB, pid int, name string) (kb int) {
	t.Helper()
	for _, line := range strings.Split(readFile(t, fmt.Sprintf("/proc/%d/status", pid)), "\n") {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			fmt.Sscan(rest, &kb)
		}
	}
	return kb
}
