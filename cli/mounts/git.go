package mounts

import (
	"fmt"
	"strings"

	"demesne/internal/git"
	"demesne/internal/text"
)

// identityIn asks the caller's git. The configuration of the repository applies, and a sandbox may have written it: its
// values are only text.
func identityIn(dir string) (env []string) {
	out, err := git.Run(nil, "-C", dir, "config", "--get-regexp", `^user\.(name|email)$`)
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
