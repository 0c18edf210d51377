package integration

import (
	"strings"
	"testing"
)

// TestMCPDenied checks that a model reaches only the domains that it asked for, and that results list the denied
// ones. It tries a script, a job, and a command in a persistent sandbox.
func TestMCPDenied(t *testing.T) {
	b := newBox(t)
	b.extra = append(b.extra, "DEMESNE_ALLOWED_DOMAINS=allowed.example")
	c := b.mcp()
	box := c.must("sandbox_create", args{"allowed_domains": []string{"allowed.example"}}).field("sandbox_id")
	want := args{"command": "getent hosts denied.example; echo asked", "allowed_domains": []string{"allowed.example"}}
	job := c.must("sandbox_script", args{"command": want["command"], "background": true}).field("job_id")
	for name, r := range map[string]answer{
		"script":                  c.must("sandbox_script", want),
		"script without a domain": c.must("sandbox_script", args{"command": want["command"]}),
		"exec":                    c.must("sandbox_exec", args{"sandbox_id": box, "command": want["command"]}),
		"job":                     c.must("sandbox_wait", args{"job_id": job}),
	} {
		denied, _ := r.Fields["denied"].([]any)
		if len(denied) != 1 || !strings.Contains(denied[0].(string), "denied.example") {
			t.Errorf("%s: denied %v of %v", name, denied, r.Fields)
		}
	}
	r := c.must("sandbox_script", args{"command": want["command"], "egress": "none"})
	if r.Fields["denied"] != nil || r.receipt()["network"] != "none" {
		t.Errorf("egress none: %v", r.Fields)
	}
	if r := c.call("sandbox_script", args{"command": "true", "allowed_domains": []string{"not a name"}}); !r.IsError || !strings.Contains(r.Text, "not a name") {
		t.Errorf("an invalid domain: %+v", r)
	}
	c.must("sandbox_destroy", args{"sandbox_id": box})
}
