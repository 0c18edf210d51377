package mounts

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

// identityIn asks the caller's git. The configuration of the repository applies, and a sandbox may have written it: its
// values are only text.
func identityIn(dir string) (env []string) {
	out, err := Git(nil, "-C", dir, "config", "--get-regexp", `^user\.(name|email)$`)
	if err != nil {
		return nil
	}
	values := map[string]string{}
	for _, line := range strings.Split(out, "\n") {
		if key, value, _ := strings.Cut(line, " "); value != "" {
			values[key] = text.SafeLine(value)
		}
	}
	for _, key := range []string{"name", "email"} {
		if value := values["user."+key]; value != "" {
			upper := strings.ToUpper(key)
			env = append(env, fmt.Sprintf("GIT_AUTHOR_%s=%s", upper, value), fmt.Sprintf("GIT_COMMITTER_%s=%s", upper, value))
		}
	}
	return env
}

// gitTime is how long one git command may take.
const gitTime = 5 * time.Minute

// Git runs git, with no hook and with strict checks of what it receives.
func Git(env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), gitTime)
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
