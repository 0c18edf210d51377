// Package git runs the git of this machine on repositories that a sandbox may have written.
//
//	git.Run(env, "-C", dir, "log")        // without hooks, and with strict checks of received objects
//	git.Identity(git.Author(dir))         // variables for git in a sandbox
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
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		line, _, _ := strings.Cut(strings.TrimSpace(string(exit.Stderr)), "\n")
		return "", fmt.Errorf("git: %s", text.SafeLine(cmp.Or(line, exit.Error())))
	}
	return strings.TrimSpace(string(out)), err
}

// Author returns the name and the address of the user in a directory. The configuration of its repository applies, and a
// sandbox may have written that: the values are only text.
func Author(dir string) (name, email string) {
	out, _ := Run([]string{"GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1"}, "-C", dir, "config", "--get-regexp", `^user\.(name|email)$`)
	for _, line := range strings.Split(out, "\n") {
		switch key, value, _ := strings.Cut(line, " "); key {
		case "user.name":
			name = text.SafeLine(value)
		case "user.email":
			email = text.SafeLine(value)
		}
	}
	return name, email
}

// Identity returns the variables that make someone the author of commits. An empty value sets none.
func Identity(name, email string) (env []string) {
	if name != "" {
		env = append(env, "GIT_AUTHOR_NAME="+name, "GIT_COMMITTER_NAME="+name)
	}
	if email != "" {
		env = append(env, "GIT_AUTHOR_EMAIL="+email, "GIT_COMMITTER_EMAIL="+email)
	}
	return env
}
