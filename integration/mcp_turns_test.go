package integration

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// TestMCPQueue checks that calls with queue on one key, made by two servers, run one at a time in order of
// arrival.
func TestMCPQueue(t *testing.T) {
	b := newBox(t)
	servers := []*mcpClient{b.mcp(), b.mcp()}
	first := servers[0].must("sandbox_script", args{"key": "k", "command": "pwd; echo 0 > /tmp/n"})
	if first.field("stdout") != "/out\n" || first.Fields["job_id"] == nil {
		t.Errorf("%+v", first.Fields)
	}
	box := servers[1].must("sandbox_create", args{"key": "k", "egress": "package-managers"}).field("sandbox_id")
	// The first call holds the line until all the others are waiting.
	held := args{"key": "k", "queue": true, "command": "while ! test -e /out/go; do sleep 0.02; done"}
	_, holder := servers[0].start("sandbox_script", held)
	eventually(t, "the first to have its turn", func() bool { return len(names(b.home+"/.demesne/turns")) == 2 })
	var wg sync.WaitGroup
	for i := range 6 {
		c := servers[i%2]
		call := args{"sandbox_id": box, "queue": true, "command": fmt.Sprintf("n=$(cat /tmp/n); sleep 0.05; echo $((n+1)) > /tmp/n; echo %d >> /tmp/order", i)}
		if i == 5 {
			call["command"] = "echo 5 >> /tmp/order; kill -9 $$"
		}
		_, ch := c.start("sandbox_exec", call)
		wg.Go(func() { c.await(ch) })
		eventually(t, "it to stand in line", func() bool { return len(names(b.home+"/.demesne/turns")) == i+3 })
	}
	if err := os.WriteFile(first.field("output_dir")+"/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	servers[0].await(holder)
	wg.Wait()
	r := servers[0].must("sandbox_exec", args{"sandbox_id": box, "queue": "true", "command": "cat /tmp/n /tmp/order"})
	if got := strings.Fields(r.field("stdout")); fmt.Sprint(got) != "[5 0 1 2 3 4 5]" {
		t.Errorf("in the order they were served: %v", got)
	}
	servers[1].must("sandbox_destroy", args{"sandbox_id": box})
	if left := names(b.home + "/.demesne/turns"); len(left) != 1 {
		t.Errorf("left in line: %v", left)
	}
	os.RemoveAll(b.home + "/.demesne/turns")
}

// TestMCPMany checks that a user may have a bounded number of sandboxes, however many are created at once.
// Finding one by its key creates no other.
func TestMCPMany(t *testing.T) {
	b := newBox(t)
	b.extra = append(b.extra, "DEMESNE_MAX_SANDBOXES=2")
	c := b.mcp()
	one := c.must("sandbox_create", args{"key": "k"}).field("sandbox_id")
	two := c.must("sandbox_create", args{}).field("sandbox_id")
	r := c.call("sandbox_create", args{})
	if !r.IsError || !strings.HasPrefix(r.Text, "create sandbox: too many sandboxes (2)\nhint: ") {
		t.Errorf("a third: %+v", r)
	}
	if again := c.must("sandbox_create", args{"key": "k"}).field("sandbox_id"); again != one {
		t.Errorf("the first's key: %s, and it is %s", again, one)
	}
	c.must("sandbox_script", args{"command": "true"})
	if listed := strings.Fields(b.demesne("ls", "-q").stdout); len(listed) != 2 {
		t.Errorf("there are %v", listed)
	}
	c.must("sandbox_destroy", args{"sandbox_id": one})
	c.must("sandbox_destroy", args{"sandbox_id": two})
}
