package oci

import "errors"

// Config is what an image says about how to run it, of all that its configuration holds. An
// unknown field is left alone.
type Config struct {
	Architecture string
	Variant      string
	OS           string
	Env          []string // NAME=VALUE
	Entrypoint   []string
	Cmd          []string
	WorkingDir   string
	User         string // "", name, uid, name:group, uid:gid; looked up in the image
}

// ErrNoCommand says that neither the caller nor the image names a command.
var ErrNoCommand = errors.New("the image has no command of its own, and none was given")

// Command returns the argv of a run, as `docker run` has it: the entrypoint and then args, or the
// image's Cmd if there are none. An entrypoint of the caller's replaces the image's, and its Cmd
// too, which was written for the other one. A pointer to an empty entrypoint takes it away.
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
