package integration

import (
	"strings"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// TestMCPImage checks that a call on an image pulls, unpacks and runs it, however many calls ask for it at once.
// The receipt has its digest. Of images outside the catalogue, a model may use only those that the operator
// allows.
func TestMCPImage(t *testing.T) {
	g := newGallery(t)
	ref, img := g.simple("demo:1")
	g.push("docker/library/python:3.12", v1.Config{Env: []string{"SNAKE=yes"}, WorkingDir: "/tmp"}, g.busybox())
	g.extra = append(g.extra, "DEMESNE_ALLOWED_IMAGES="+ref, "DEMESNE_DEFAULT_IMAGE=python")
	c := g.mcp()
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			r := c.must("sandbox_script", args{"image": ref, "command": "cat /etc/passwd; pwd", "egress": "none"})
			if !strings.HasPrefix(r.field("stdout"), "root:x:0:0:root:/root:/bin/sh\n") || !strings.HasSuffix(r.field("stdout"), "/out\n") || r.receipt()["image_digest"] != digestOf(t, img) {
				t.Errorf("%v", r.Fields)
			}
		})
	}
	wg.Wait()
	if r := c.must("sandbox_script", args{"command": "echo $SNAKE", "egress": "none"}); r.field("stdout") != "yes\n" {
		t.Errorf("the default image: %v", r.Fields)
	}
	other := strings.Replace(ref, "demo:1", "demo:2", 1)
	if r := c.call("sandbox_script", args{"image": other, "command": "true"}); !r.IsError || !strings.Contains(r.Text, "is not in the allowlist (host, node, python") {
		t.Errorf("%s: %+v", other, r)
	}
	if r := c.call("sandbox_script", args{"image": "node", "command": "true", "egress": "none"}); !r.IsError || !strings.Contains(r.Text, `image "node": `) {
		t.Errorf("one that the registry has not: %+v", r)
	}
	job := c.must("sandbox_script", args{"image": ref, "command": "echo of a job", "background": true, "egress": "none"}).field("job_id")
	if r := c.must("sandbox_wait", args{"job_id": job}); r.field("result_text") != "of a job\n" {
		t.Errorf("job: %v", r.Fields)
	}
	box := c.must("sandbox_create", args{"image": ref}).field("sandbox_id")
	if r := c.must("sandbox_exec", args{"sandbox_id": box, "command": "echo kept > /root/f; cat /root/f"}); r.field("stdout") != "kept\n" {
		t.Errorf("exec: %v", r.Fields)
	}
	c.must("sandbox_destroy", args{"sandbox_id": box})
	c.close()
}
