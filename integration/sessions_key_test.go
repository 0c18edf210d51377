package integration

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// TestSessionKey checks that a key finds the same sandbox, with any of the original arguments left out.
func TestSessionKey(t *testing.T) {
	b := newBox(t)
	b.must("run", "--key", "my/key", "--pids", "100", "--", "sh", "-c", "echo kept > /root/f")
	b.must("exec", "--key", "my/key", "-c", "echo more >> /root/f")
	id := strings.TrimSpace(b.must("ls", "-q"))
	for _, flags := range [][]string{nil, {"--pids", "100"}, {"--image", "host"}, {"--egress", "none"}} {
		if got := b.must(append([]string{"create", "--key", "my/key"}, flags...)...); strings.TrimSpace(got) != id {
			t.Errorf("create %q found %q, not %q", flags, got, id)
		}
	}
	b.must("stop", id)
	r := b.demesne("run", "--key", "my/key", "--", "cat", "/root/f")
	if r.code != 0 || r.stdout != "kept\nmore\n" || !strings.Contains(r.stderr, "started again with its files") {
		t.Errorf("after a stop: %+v", r)
	}
	if r := b.demesne("run", "--key", "my/key", "--pids", "100", "--", "true"); r.code != 0 || r.stderr != "" {
		t.Errorf("it is said twice: %+v", r)
	}
	if all := strings.Fields(b.must("ls", "-q")); len(all) != 1 || all[0] != id {
		t.Errorf("there are %q", all)
	}
	// Runs that found an existing sandbox left no output directory.
	if outs := names(b.out); len(outs) > 2 {
		t.Errorf("output directories: %q", outs)
	}
	b.must("rm", id)
}

// TestSessionKeyDiffers checks that a call with a key and different arguments destroys no data (M6). It is
// refused, and the error names the differences. With --replace the sandbox is created again, which is reported too.
func TestSessionKeyDiffers(t *testing.T) {
	b := newBox(t)
	b.mkdir("w")
	policy := b.file("policy.toml", "mode = \"none\"\n", 0o644)
	create := []string{"create", "--key", "k", "--pids", "100"}
	id := strings.TrimSpace(b.must(create...))
	b.must("exec", id, "-c", "echo kept > /root/f")
	for _, state := range []string{"live", "stopped"} {
		for what, flags := range map[string][]string{
			`pids: created with "100", requested "90"`:            {"--pids", "90"},
			`image: created with "host", requested "dir:/usr"`:    {"--image", "dir:/usr"},
			`egress: created with "none", requested "open"`:       {"--egress", "open"},
			"allowed domains: created without it":                 {"--allow-domain", "a.test"},
			"egress file: created without it":                     {"--egress-file", policy},
			"workspace: created without it":                       {"--workspace", "w"},
			"output directory: created without it":                {"--out", "o"},
			"inputs: created without it":                          {"--in", policy},
			"ttl: created without it":                             {"--ttl", "1h"},
			"memory: created without it":                          {"--memory", "200m"},
			"published ports: created without it":                 {"--publish", "unix:s:80"},
			`pids: created with "100", requested "none"; require`: {"--pids", "none", "--require", "minimal"},
		} {
			for _, verb := range [][]string{{"create"}, {"run", "-c", "true"}} {
				args := append([]string{verb[0], "--key", "k"}, append(flags, verb[1:]...)...)
				if r := b.demesne(args...); r.code != 125 || !strings.Contains(r.stderr, what) || !strings.Contains(r.stderr, "--replace") {
					t.Errorf("%s, %q: %+v, want %q", state, args, r, what)
				}
			}
		}
		if got := b.must("exec", "--key", "k", "--", "cat", "/root/f"); got != "kept\n" {
			t.Errorf("%s: its file is %q", state, got)
		}
		b.must("stop", id)
	}
	if exists(b.dir + "/o") {
		t.Error("a refused run left its output directory")
	}
	b.refused(t, "--key", "run", "--replace", "--", "true")
	r := b.demesne("run", "--key", "k", "--pids", "90", "--replace", "--json", "-c", "cat /root/f; echo new > /root/f")
	if r.code != 0 || !strings.Contains(r.stdout, `"replaced": true`) || !strings.Contains(r.stdout, `"stdout": ""`) || !strings.Contains(r.stderr, "removed the sandbox with the key") {
		t.Errorf("run --replace: %+v", r)
	}
	other := strings.TrimSpace(b.must("ls", "-q"))
	if strings.Contains(other, id) || strings.Contains(other, "\n") {
		t.Errorf("there are %q, and %s was replaced", other, id)
	}
	if r := b.demesne("run", "--key", "k", "--pids", "90", "-c", "cat /root/f"); r.stdout != "new\n" || r.stderr != "" {
		t.Errorf("after it was replaced: %+v", r)
	}
	if r := b.demesne("create", "--key", "k", "--replace", "--json"); r.code != 0 || !strings.Contains(r.stdout, `"replaced": true`) {
		t.Errorf("create --replace: %+v", r)
	}
	if r := b.demesne("create", "--key", "new", "--replace", "--json"); r.code != 0 || strings.Contains(r.stdout, "replaced") {
		t.Errorf("create --replace without an old sandbox: %+v", r)
	}
	b.must(append([]string{"rm"}, strings.Fields(b.must("ls", "-q"))...)...)
}

// TestSessionKeyPublish checks that the same flags find the keyed sandbox again that publishes ports.
func TestSessionKeyPublish(t *testing.T) {
	b := newBox(t)
	create := []string{"create", "--key", "web", "--publish", freePort(t) + ":3000"}
	id := b.must(create...)
	if again := b.must(create...); again != id {
		t.Errorf("found %q, not %q", again, id)
	}
	if r := b.demesne(append(create, "--replace", "--json")...); r.code != 0 || !strings.Contains(r.stdout, `"replaced": true`) {
		t.Errorf("--replace on the same port: %+v", r)
	}
	b.must("rm", strings.TrimSpace(b.must("ls", "-q")))
}

// TestSessionKeyRace runs six callers at once on one key, with two policies. The callers with the policy of the
// first get one sandbox; the error for the others names the difference.
func TestSessionKeyRace(t *testing.T) {
	b := newBox(t)
	for round := range 4 {
		key := fmt.Sprint("race ", round)
		var all []*exec.Cmd
		var outs, errs [6]strings.Builder
		for i := range 6 {
			cmd := b.command("demesne", "create", "--key", key, "--pids", fmt.Sprint(100+i%2))
			cmd.Stdout, cmd.Stderr = &outs[i], &errs[i]
			all = append(all, cmd)
		}
		for _, cmd := range all {
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
		}
		ids, won := map[string]bool{}, map[int]int{}
		for i, cmd := range all {
			cmd.Wait()
			switch id, told := strings.TrimSpace(outs[i].String()), errs[i].String(); {
			case id != "" && told == "":
				ids[id], won[i%2] = true, won[i%2]+1
			case id != "" || !strings.Contains(told, "pids: created with"):
				t.Errorf("caller %d: %q, %q", i, id, told)
			}
		}
		if len(ids) != 1 || len(won) != 1 || won[0]+won[1] != 3 {
			t.Errorf("round %d: sandboxes %v; of each policy won %v", round, ids, won)
		}
		for id := range ids {
			b.must("rm", id)
		}
	}
}
