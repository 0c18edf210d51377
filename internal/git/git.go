// Package git runs the git of this machine on repositories that a sandbox may have written.
package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"demesne/internal/text"
)

// longest is how long one git command may take.
const longest = 5 * time.Minute

// Run runs git, with no hook and with strict checks of what it receives.
func Run(env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.alternateRefsCommand=true",
		"-c", "core.bigFileThreshold=32m", "-c", "fetch.fsckObjects=true", "-c", "transfer.fsckObjects=true"}, args...)...)
	own := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "GIT_") })
	cmd.Env = slices.Concat(own, []string{"GIT_TERMINAL_PROMPT=0"}, env)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		line, _, _ := strings.Cut(strings.TrimSpace(string(exit.Stderr)), "\n")
		return "", fmt.Errorf("git: %s", text.SafeLine(cmp.Or(line, exit.Error())))
	}
	return strings.TrimSpace(string(out)), err
}
