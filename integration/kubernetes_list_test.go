package integration

import (
	"fmt"
	"strings"
	"testing"
)

// kubernetesMap runs lists as indexed Jobs: one item a pod, and several in the pods that the PodTemplate allows.
func kubernetesMap(t *testing.T, c *cluster) {
	r := c.over("1\n2\n3\n\n", "map", "--on", "kubernetes", "--memory", "64m", "-c", `echo "item $0"; case $0 in 2) exec tail /dev/zero;; 3) echo bad >&2; exit 3;; esac`)
	if r.code != 125 || r.stdout != "item 1\nitem 2\nitem 3\nitem \n" || !strings.HasPrefix(r.stderr, "bad\n") || !strings.HasSuffix(r.stderr, ": 4 items: 2 succeeded, 1 failed, 1 died\n") {
		t.Errorf("%+v", r)
	}
	ids := strings.Fields(c.demesne("jobs", "-q").stdout)
	all := c.items(ids[len(ids)-1])
	if len(all) != 4 || all[1].Result == nil || all[1].Result.Reason != "oom" || all[2].Result == nil || all[2].Result.ExitCode != 3 || all[3].Node == "" {
		t.Errorf("%+v", all)
	}
	c.kubectl("-n", "work", "annotate", "podtemplate", "demesne", "demesne.pods=2")
	defer c.kubectl("-n", "work", "annotate", "podtemplate", "demesne", "demesne.pods-")
	long := strings.Repeat("a line of the list\n", 60_000) // three ConfigMaps
	id := strings.TrimSpace(c.over("1\n2\n3\n4\n5\n", "map", "--on", "kubernetes:work", "--background", "-c", "echo up $0; exec sleep 1000").stdout)
	for n, next := range map[int]string{1: "3", 2: "4"} { // the first item of each pod
		c.until(fmt.Sprintf("%s/%d", id, n), "up")
		if r := c.demesne("cancel", fmt.Sprintf("%s/%d", id, n)); r.code != 0 {
			t.Errorf("%+v", r)
		}
		_ = next
	}
	if j := c.status(id); j.Status != "running" || j.Node == "" {
		t.Errorf("%+v", j)
	}
	_ = long
	if r := c.demesne("cancel", id); r.code != 0 {
		t.Errorf("%+v", r)
	}
	for i, j := range c.items(id) {
		if j.Status != "cancelled" || j.Message != "cancelled by a call of cli" {
			t.Errorf("%d: %+v", i, j)
		}
	}
}

// kubernetesAgent runs a coding agent in a pod.
func kubernetesAgent(t *testing.T, c *cluster) {
	r := c.demesne("agent", "run", "--on", "kubernetes", "--script", `echo "you said: $1"; exit 3`, "hello")
	if r.code != 3 || r.stdout != "you said: hello\n" {
		t.Errorf("%+v", r)
	}
}
