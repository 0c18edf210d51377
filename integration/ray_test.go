package integration

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

const rayGuide = "docs/guide/clusters/ray.md"

// TestRay runs commands on a real cluster of two machines, as an ordinary user without subordinate ids. make ray installs Ray first.
func TestRay(t *testing.T) {
	if os.Getenv("DEMESNE_RAY") == "" {
		t.Skip("make ray runs it")
	}
	t.Setenv("RAY_AUTH_TOKEN", realKey)
	t.Setenv("RAY_USER", player)
	c := newCluster(t, "ray", func(c *cluster) { t.Setenv("HOME", c.home) })
	const head = "http://10.20.7.1:8265"
	c.extra = append(c.extra, "RAY_API_SERVER_ADDRESS="+head, "RAY_AUTH_TOKEN="+realKey)
	t.Run("run", func(t *testing.T) {
		out := c.dir + "/work/result"
		r := c.demesne("run", "--on", "ray", "--out", out, "--env", "WORD", "--", "sh", "-c",
			`printf '%s|' "$@"; printf 'a\000b'; cat /etc/hostname >/out/f; echo "$WORD ${RAY_AUTH_TOKEN-none}" >&2; exit 7`, "sh", "a b", "$(id)", "'%", "line\nline")
		if r.code != 7 || r.stdout != "a b|$(id)|'%|line\nline|a\x00b" || r.stderr != "word none\n" {
			t.Errorf("%+v", r)
		}
		if _, err := os.Stat(out + "/f"); err != nil {
			t.Error(err)
		}
	})
	t.Run("job", func(t *testing.T) {
		id := c.job("--memory", "256m", "--cpus", "0.5", "--timeout", "10m", "--", "sh", "-c", "echo one; echo two >&2")
		c.extra = append(c.extra, "RAY_API_SERVER_ADDRESS=http://127.0.0.1:1") // the job knows its cluster
		defer func() { c.extra = c.extra[:len(c.extra)-1] }()
		if r := c.demesne("logs", "-f", id); r.stdout != "one\n" || r.stderr != "two\n" {
			t.Errorf("logs: %+v", r)
		}
		r := c.demesne("wait", "--json", id)
		var j placedJob
		if err := json.Unmarshal([]byte(r.stdout), &j); err != nil || j.Status != "succeeded" || j.On != "ray:"+head || j.Node != "n1" && j.Node != "n2" {
			t.Errorf("wait: %+v, %v", r, err)
		}
	})
	t.Run("cancel", func(t *testing.T) {
		var ids []string
		for range 2 {
			id := c.job("--cpus", "2", "--", "sh", "-c", "echo up; exec sleep 1000")
			c.until(id, "up")
			ids = append(ids, id)
		}
		if a, b := c.status(ids[0]), c.status(ids[1]); a.Status != "running" || a.Node == b.Node {
			t.Errorf("%+v, %+v", a, b)
		}
		queued := c.job("--", "sh", "-c", "echo begun") // no machine has a processor left
		if j := c.status(queued); j.Status != "queued" || j.Message == "" {
			t.Errorf("%+v", j)
		}
		for _, id := range append([]string{queued}, ids...) {
			if r := c.demesne("cancel", id); r.code != 0 {
				t.Errorf("%+v", r)
			}
			if j := c.status(id); j.Status != "cancelled" || j.Message != "cancelled by a call of cli" {
				t.Errorf("%+v", j)
			}
		}
		if r := c.demesne("logs", queued); r.stdout != "" {
			t.Errorf("it began: %+v", r)
		}
	})
	t.Run("signal", c.interrupt)
	t.Run("map", func(t *testing.T) { rayMap(t, c) })
	t.Run("alike", c.alike)
	t.Run("full", func(t *testing.T) { placedFull(t, c) })
	t.Run("driver", func(t *testing.T) { rayDriver(t, c) })
	t.Run("untrusted", func(t *testing.T) {
		c.untrusted(t, map[string]string{"does not accept this user's token\nhint: RAY_AUTH_TOKEN": "RAY_AUTH_TOKEN=wrong"})
	})
	t.Run("agent", func(t *testing.T) {
		if r := c.demesne("agent", "run", "--on", "ray", "--script", `echo "you said: $1"`, "hello"); r.code != 0 || r.stdout != "you said: hello\n" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("refused", func(t *testing.T) {
		for want, args := range map[string][]string{
			"has credentials\nhint: ":                                                       {"--on", "ray:http://a:b@10.20.7.1:8265", "--", "true"},
			"no partition, namespace or address":                                            {"--on", "ray:", "--", "true"},
			"no answer from Ray's dashboard http://10.20.7.1:1: dial tcp":                   {"--on", "ray:10.20.7.1:1", "--", "true"},
			"http://10.20.7.1:52365 is not a dashboard of Ray\nhint: --on ray:http://HOST:": {"--on", "ray:10.20.7.1:52365", "--", "true"}, // of the machine's agent
			"name something of this":                                                        {"--on", "ray", "--key", "k", "--", "true"},
			"cluster's disk":                                                                {"--on", "ray", "--secret", "DEMESNE_TEST_SECRET", "--secret-for", "DEMESNE_TEST_SECRET=good.test", "--", "true"},
		} {
			if r := c.demesne(append([]string{"run"}, args...)...); r.code != 125 || !strings.Contains(r.stderr, want) || len(strings.Split(r.stderr, "\n")) > 3 {
				t.Errorf("%q: %+v", args, r)
			}
		}
	})
	t.Run("document", func(t *testing.T) {
		steps := []step{{command: "cd " + c.dir + "/work"}} // nsenter leaves the directory
		transcript(c.box, rayGuide, append(steps, stepsOf(document(t, rayGuide))...))
	})
	t.Run("left", func(t *testing.T) {
		if left := names(c.dir + "/tmp"); len(left) > 0 {
			t.Errorf("left %q", left)
		}
	})
	t.Run("machine", func(t *testing.T) {
		ids := map[string]string{}
		for len(ids) < 2 {
			id := c.job("--cpus", "1.5", "--", "sh", "-c", "echo up; exec sleep 1000")
			c.until(id, "up")
			ids[c.status(id).Node] = id
		}
		list := strings.TrimSpace(c.over("1\n2\n", "map", "--on", "ray", "--cpus", "0.5", "--background", "-c", `echo "up $0"; sleep 10; echo end`).stdout)
		c.until(list+"/1", "up")
		c.until(list+"/2", "up")
		if all := c.items(list); all[0].Node == all[1].Node {
			t.Errorf("%+v", all)
		}
		c.root("sh", "-c", "kill -KILL $(cat '"+c.state+"/n2.pid')")
		var r result
		eventually(t, "an answer", func() bool { // the dashboard asks the dead machine first
			r = c.demesne("wait", ids["n2"])
			return !strings.Contains(r.stderr, ": no answer ")
		})
		if r.code != 125 || !strings.Contains(r.stderr, "ended the job: Job supervisor actor died") {
			t.Errorf("%+v", r)
		}
		eventually(t, "the list", func() bool {
			r = c.demesne("wait", list)
			return !strings.Contains(r.stderr, ": no answer ")
		})
		if r.code != 0 || !strings.HasSuffix(r.stderr, "2 items: 2 succeeded\n") {
			t.Errorf("%+v", r)
		}
		if r := c.demesne("logs", list); r.stdout != "up 1\nend\nup 2\nend\n" {
			t.Errorf("%+v", r)
		}
		for _, j := range c.items(list) { // one of them began on n2
			if j.Node != "n1" {
				t.Errorf("%+v", j)
			}
		}
		if j := c.status(ids["n1"]); j.Status != "running" {
			t.Errorf("%+v", j)
		}
		c.root("sh", "-c", "kill -KILL $(cat '"+c.state+"/n1.pid')")
		if r := c.demesne("wait", ids["n1"]); r.code != 125 || !strings.Contains(r.stderr, "no answer from Ray's dashboard "+head) {
			t.Errorf("%+v", r)
		}
	})
}

// rayMap runs lists. An item that fails begins once.
func rayMap(t *testing.T, c *cluster) {
	r := c.over("1\n2\n3\n4\n5\n", "map", "--on", "ray", "--parallel", "3", "-c", `echo "item $0"; test "$0" != 4`)
	if r.code != 1 || r.stdout != "item 1\nitem 2\nitem 3\nitem 4\nitem 5\n" || !strings.HasSuffix(r.stderr, ": 5 items: 4 succeeded, 1 failed\n") {
		t.Errorf("%+v", r)
	}
	id := strings.TrimSpace(c.over(strings.Repeat("sleep 1000\n", 4)+"sleep 1\n", "map", "--on", "ray", "--background", "-c", "echo up; $0").stdout)
	for _, n := range []string{"1", "2", "3", "4"} { // both machines have two processors
		c.until(id+"/"+n, "up")
	}
	if r := c.demesne("cancel", id+"/1"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if r := c.demesne("wait", id+"/5"); r.code != 0 { // it has the processor of the first
		t.Errorf("%+v", r)
	}
	if r := c.demesne("cancel", id); r.code != 0 {
		t.Errorf("%+v", r)
	}
	for i, j := range c.items(id) {
		if i < 4 && (j.Status != "cancelled" || j.Message != "cancelled by a call of cli") || i == 4 && j.Status != "succeeded" {
			t.Errorf("%d: %+v", i, j)
		}
	}
}
