package oci

import (
	"errors"
	"slices"
	"strings"
)

// Config is the part of an image's configuration that describes how to run it. Unknown fields are
// ignored.
type Config struct {
	Architecture string
	Variant      string
	OS           string
	Env          []string // NAME=VALUE: see Variables
	Entrypoint   []string
	Cmd          []string
	WorkingDir   string
	User         string // "", name, uid, name:group, uid:gid; resolved in the image
	StopSignal   string // "", or a signal's name or number, unchanged
	Labels       map[string]string
}

// Variables returns the entries of an image's environment that are variables. It drops entries without a name or a "=":
// other engines take the value of such a name from the host's environment. It also drops entries with a NUL byte, with
// which no command can start.
func Variables(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(s string) bool {
		return strings.Index(s, "=") <= 0 || strings.ContainsRune(s, 0)
	})
}

// ErrNoCommand reports that neither the caller nor the image specifies a command.
var ErrNoCommand = errors.New("the image has no default command, and no command was given")

// Command returns the argv of a run, as `docker run` computes it: the entrypoint followed by
// args, or by the image's Cmd if args is empty. A non-nil entrypoint replaces the image's
// entrypoint and also drops its Cmd, which was written for the image's entrypoint. A pointer to
// an empty entrypoint removes it.
func (c Config) Command(entrypoint *[]string, args []string) ([]string, error) {
	first, rest := c.Entrypoint, c.Cmd
	if entrypoint != nil {
		first, rest = *entrypoint, nil
	}
	if len(args) > 0 {
		rest = args
	}
	argv := make([]string, 0, len(first)+len(rest))
	argv = append(append(argv, first...), rest...)
	if len(argv) == 0 || argv[0] == "" {
		return nil, ErrNoCommand
	}
	return argv, nil
}

// FeatureLabel is the label of an image that has the files of a dev container feature: the feature's own description.
const FeatureLabel = "demesne.feature"
