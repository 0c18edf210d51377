package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// with adds variables to the environment of c's programs, until the function that it returns is called.
func (c *cluster) with(vars ...string) (back func()) {
	before := c.extra
	c.extra = append(before[:len(before):len(before)], vars...)
	return func() { c.extra = before }
}

// placedFull fills the disk with the jobs, which the machines of the cluster share. A result that has its place is not lost, and an
// item without one does not begin.
func placedFull(t *testing.T, c *cluster) {
	small := c.state + "/small"
	big := "head -c 8m /dev/zero"
	if r := c.demesne("run", "--on", c.on, "--out", small+"/result", "--", "sh", "-c", big+" >/out/big || echo full; exit 3"); r.code != 3 || r.stdout != "full\n" {
		t.Errorf("output: %+v", r)
	}
	c.root("rm", "-r", small+"/result")
	defer c.with("DEMESNE_STATE=" + small)()
	r := c.demesne("wait", c.job("--", "sh", "-c", big+"; exit 3"))
	if r.code != 3 || !strings.Contains(r.stderr, "bytes are lost") || !strings.Contains(r.stderr, "no space left") {
		t.Errorf("a job: %+v", r)
	}
	r = c.demesne("run", "--on", c.on, "--", "true")
	if r.code != 125 || !strings.HasPrefix(r.stderr, "demesne: run: start job: reserve space for the result: no space left on device\nhint: df ") {
		t.Errorf("another job: %+v", r)
	}
	if all := strings.Fields(c.demesne("jobs", "-q").stdout); len(all) != 1 {
		t.Errorf("%q", all)
	}
	c.root("sh", "-c", "rm -r '"+small+"'/jobs/job-*")
	r = c.over("1\n2\n3\n", "map", "--on", c.on, "--parallel", "1", "--background", "-c", `echo "up $0"; head -c 8m /dev/zero`)
	id := strings.TrimSpace(r.stdout)
	if r = c.demesne("wait", id); r.code != 125 || !strings.Contains(r.stderr, " died (") || !strings.Contains(r.stderr, ": reserve space for the result: no space left on device)\n") {
		t.Errorf("a list: %+v", r)
	}
	began := 0
	for i, j := range c.items(id) {
		if j.Result == nil && j.Status != "failed" || j.Result != nil && (j.Status != "succeeded" || !strings.Contains(j.Message, "bytes are lost")) {
			t.Errorf("%d: %+v", i, j)
		}
		if out := c.demesne("logs", j.ID).stdout; strings.HasPrefix(out, fmt.Sprintf("up %d\n", i+1)) {
			began++
		} else if out != "" && j.Result == nil {
			t.Errorf("%d: it began: %q", i, out)
		}
	}
	if began == 0 || began == 3 {
		t.Errorf("%d items began", began)
	}
	c.root("sh", "-c", "rm -r '"+small+"'/*")
}

// untrusted runs demesne in environments with which the cluster does not listen to it. Each has its error. Nothing is submitted, and a job
// that runs has its result, whatever was asked meanwhile.
func (c *cluster) untrusted(t *testing.T, environments map[string]string) {
	out := c.dir + "/work/untrusted"
	id := c.job("--out", out, "--", "sh", "-c", "echo up; while [ ! -e /out/end ]; do sleep 0.1; done; echo end")
	c.until(id, "up")
	before := strings.Count(c.demesne("jobs").stdout, "\n")
	for want, environment := range environments {
		back := c.with(environment)
		for _, args := range [][]string{{"run", "--on", c.on, "--", "true"}, {"cancel", id}} {
			if r := c.demesne(args...); r.code != 125 || !strings.Contains(r.stderr, want) || strings.Count(r.stderr, "\n") != 2 {
				t.Errorf("%q: %+v", args, r)
			}
		}
		if r := c.demesne("jobs"); !strings.Contains(r.stdout, " running ") || strings.Count(r.stdout, "\n") != before {
			t.Errorf("%s", r.stdout)
		}
		back()
	}
	c.file("work/untrusted/end", "", 0o644)
	if r := c.demesne("logs", "-f", id); r.code != 0 || r.stdout != "up\nend\n" {
		t.Errorf("%+v", r)
	}
	if j := c.status(id); j.Status != "succeeded" {
		t.Errorf("%+v", j)
	}
}

// slurmUntrusted is untrusted where munge does not run, or has another key than the cluster, as after a change of the key; and without
// a controller.
func slurmUntrusted(t *testing.T, c *cluster) {
	c.root("bash", "-ec", `cd "$1"; install -d -m 755 -o munge -g munge other; head -c 128 /dev/urandom >other/key; chown munge: other/key; chmod 400 other/key
		setpriv --reuid munge --regid munge --init-groups munged --key-file "$1/other/key" --socket "$1/other/socket" --pid-file "$1/other/pid" --log-file "$1/other/log" --seed-file "$1/other/seed"`, "bash", c.state)
	conf := func(name, old, changed string) string {
		return "SLURM_CONF=" + c.file(name+".conf", strings.Replace(readFile(t, c.state+"/slurm.conf"), old, changed, 1), 0o644)
	}
	c.untrusted(t, map[string]string{
		"Munge encode failed: Failed to access ":                                         conf("none", "/munge/socket", "/none/socket"),
		"Zero Bytes were transmitted or received\nhint: munge must run on this machine ": conf("other", "/munge/socket", "/other/socket"),
		"(connect failure)\nhint: scontrol ping tests the connection":                    conf("down", "10.20.7.254)", "10.20.7.254)\nSlurmctldPort=1\nMessageTimeout=2"),
	})
	c.root("sh", "-c", "kill $(cat '"+c.state+"/other/pid')")
}

// rayDriver kills the driver of a list. What has a result keeps it, and nothing of the other items stays.
func rayDriver(t *testing.T, c *cluster) {
	id := strings.TrimSpace(c.over("1\n2\n3\n", "map", "--on", "ray", "--background", "-c", `echo "up $0"; test "$0" = 1 || exec sleep 987654`).stdout)
	c.until(id+"/2", "up")
	c.until(id+"/3", "up")
	if r := c.demesne("wait", id+"/1"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	c.root("pkill", "-KILL", "-f", "^python3 -c .*"+id)
	r := c.demesne("wait", id)
	if r.code != 125 || !strings.Contains(r.stderr, "3 items: 1 succeeded, 2 died (ray:http://10.20.7.1:8265 ended it: ") {
		t.Errorf("%+v", r)
	}
	eventually(t, "the end of the commands", func() bool { return c.finish(c.command("/usr/bin/pgrep", "-f", "sleep 987654")).code == 1 })
	eventually(t, "no files", func() bool { return len(names(c.dir+"/tmp")) == 0 })
	if all := c.items(id); all[0].Status != "succeeded" || all[1].Status != "failed" || all[2].Status != "failed" {
		t.Errorf("%+v", all)
	}
}

// alike checks that jobs, wait, logs and cancel answer the same about the jobs of each place. TestPlacesAlike compares what needs no engine.
func (c *cluster) alike(t *testing.T) {
	const stays = "echo up; exec sleep 1000"
	table := []struct {
		name, verb, text     string
		code                 int
		stdout, said, status string // said is of wait
	}{
		{"succeeds", "run -- sh -c", `echo one; printf 'a\000b\n'; echo two >&2`, 0, "one\na\x00b\n", "", "succeeded"},
		{"fails", "run -- sh -c", "echo one; exit 7", 7, "one\n", "", "failed"},
		{"missing", "run --", "no-such-program", 125, "", `failed: execute "no-such-program": not found`, "failed"},
		{"late", "run --timeout 5s -- sh -c", "echo one; exec sleep 1000", 124, "one\n", "wait: timed out: the time limit of 5s was reached", "failed"},
		{"killed", "run -- sh -c", "kill -9 $$", 137, "", "", "failed"},
		{"list", "map -c", `echo "item $0"; test "$0" != 2`, 1, "item 1\nitem 2\nitem 3\n", "3 items: 2 succeeded, 1 failed\n", "failed"},
		{"cancelled", "run -- sh -c", stays, 125, "up\n", "cancelled: cancelled by a call of cli\n", "cancelled"},
		{"cancelled list", "map --parallel 3 -c", stays, 125, "up\nup\nup\n", "cancelled: cancelled by a call of cli\n", "cancelled"},
	}
	for _, want := range table {
		t.Run(want.name, func(t *testing.T) {
			t.Parallel() // an engine lets each wait
			words := strings.Fields(want.verb)
			words = slices.Concat(words[:1], []string{"--background", "--on", c.on}, words[1:], []string{want.text})
			r := c.over("1\n2\n3\n", words...)
			id, cancelled := strings.TrimSpace(r.stdout), strings.HasPrefix(want.name, "cancelled")
			if r.code != 0 || r.stderr != "" {
				t.Fatalf("%+v", r)
			}
			if cancelled {
				for n := range strings.Count(want.stdout, "\n") {
					of := id
					if want.verb[0] == 'm' {
						of = fmt.Sprintf("%s/%d", id, n+1)
					}
					c.until(of, "up\n")
				}
				if r := c.demesne("wait", "--timeout", "1ms", id); r.code != 124 || !strings.HasSuffix(r.stderr, " is still running\n") {
					t.Errorf("wait: %+v", r)
				}
				if r := c.demesne("cancel", id); r.code != 0 || r.stdout+r.stderr != "" {
					t.Errorf("cancel: %+v", r)
				}
			}
			if r := c.demesne("logs", "-f", id); r.code != 0 || r.stdout != want.stdout || want.name == "succeeds" && r.stderr != "two\n" {
				t.Errorf("logs -f: %+v", r)
			}
			if r := c.demesne("wait", id); r.code != want.code || !strings.Contains(r.stderr, want.said) || want.said == "" && r.stderr != "" {
				t.Errorf("wait: %+v", r)
			}
			if r := c.demesne("logs", id); r.code != 0 || r.stdout != want.stdout {
				t.Errorf("logs: %+v", r)
			}
			if r := c.demesne("cancel", id); r.code != 0 || r.stdout+r.stderr != "" {
				t.Errorf("cancel after the end: %+v", r)
			}
			if j := c.status(id); j.Status != want.status || j.Ended.IsZero() {
				t.Errorf("jobs: %+v", j)
			}
		})
	}
}
