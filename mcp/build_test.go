package mcp

import (
	"context"
	"testing"
	"time"

	"demesne/runner"
	"demesne/session"
)

// TestBuildTime checks that a build without a time limit may take the longest time.
func TestBuildTime(t *testing.T) {
	var left time.Duration
	s, _ := serverFor(t, &desk{}, func(o *Options) {
		o.Sets = ToolSets()
		o.Build = func(ctx context.Context, _ session.Request, _ session.Callbacks) (image, digest string, log session.Tail, err error) {
			end, _ := ctx.Deadline()
			left = time.Until(end)
			return "local/x", "sha256:x", session.Tail{}, nil
		}
	})
	c := client(t, s, nil)
	for arguments, longest := range map[string]time.Duration{
		`{"containerfile":"FROM local/bb"}`:                       runner.Longest,
		`{"containerfile":"FROM local/bb","timeout_seconds":600}`: 10 * time.Minute,
	} {
		if text, _, wrong := callTool(t, c, "sandbox_build", arguments); wrong || left > longest || left < longest/2 {
			t.Errorf("%s: %v left; %s", arguments, left, text)
		}
	}
}
