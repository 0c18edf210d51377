package apibackend

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"time"

	"demesne/runner/client"
	"demesne/server/backend"
)

// Build executes demesne-build, which links the parser of Containerfiles. Its steps have no more network than the
// operator's mode, and the limits of its sandboxes. The build has a place among the commands that run.
func (b *Backend) Build(ctx context.Context, o backend.Build, log io.Writer) error {
	program, err := client.FindProgram("demesne-build")
	if err != nil {
		return err
	}
	done, err := b.queue.Acquire(ctx)
	if err != nil {
		return err
	}
	defer done()
	args := []string{"--progress", "plain", "--egress", b.bounds.Egress}
	for flag, most := range map[string]int64{"--memory": b.bounds.Limits.Memory, "--disk": b.bounds.Limits.Disk} {
		switch {
		case most > 0:
			args = append(args, flag, strconv.FormatInt(most, 10))
		case most < 0:
			args = append(args, flag, "none")
		}
	}
	cmd := exec.CommandContext(ctx, program, append(args, "-t", o.Name, "-f", o.Containerfile, o.Dir)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %q: %w", o.Name, err)
	}
	return nil
}
