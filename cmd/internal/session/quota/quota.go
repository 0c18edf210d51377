// Package quota bounds how many persistent sandboxes, running jobs and output directories a user may have at
// once. The bounds come from the environment, and are the same for all programs.
//
//	most, err := quota.Sandboxes(os.Getenv)
//	… make one …
//	err = quota.Full(n, most)      // n counts all, including the new one
//
// Callers count after creation, so that two concurrent ones cannot both take the last slot; a caller that finds
// too many removes its own. The bound protects against mistakes, such as a loop. It is no security boundary: a
// user can set another one.
package quota

import (
	"errors"
	"fmt"
	"strconv"
)

// Environment variables.
const (
	VarSandboxes = "DEMESNE_MAX_SANDBOXES"
	VarSlots     = "DEMESNE_MAX_JOBS"
	VarOutputs   = "DEMESNE_MAX_OUTPUTS"
)

// sandboxes is the default bound of persistent sandboxes, and outputs that of the output directories that an
// MCP server keeps.
const sandboxes, outputs = 64, 1000

// ErrFull means that a user has more sandboxes than are allowed.
var ErrFull = errors.New("too many sandboxes")

// Sandboxes returns how many persistent sandboxes a user may have.
func Sandboxes(env func(string) string) (int, error) { return number(env, VarSandboxes, sandboxes) }

// Outputs is how many output directories an MCP server keeps.
func Outputs(env func(string) string) (int, error) { return number(env, VarOutputs, outputs) }

// Slots returns how many jobs may run at once; fallback is the default.
func Slots(env func(string) string, fallback int) (int, error) {
	return number(env, VarSlots, fallback)
}

func number(env func(string) string, variable string, fallback int) (int, error) {
	v := env(variable)
	if v == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s %q: not a number of at least 1", variable, v)
	}
	return n, nil
}

// Full returns [ErrFull] if n, the number of persistent sandboxes, is more than most.
func Full(n, most int) error {
	if n > most {
		return fmt.Errorf("create sandbox: %w (%d)", ErrFull, most)
	}
	return nil
}
