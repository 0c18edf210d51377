// Package room bounds what a user may have at once: sandboxes that stay, and jobs that run. The numbers are the
// environment's, and the same for all programs.
//
//	most, err := quota.Sandboxes(os.Getenv)
//	… make one …
//	err = quota.Full(n, most)      // of n there are, it among them
//
// It is looked at afterwards, so that two that come at once cannot both be the last one; who finds too many
// takes its own away again. The bound is a help against mistakes, such as a loop: a user could set another one.
package quota

import (
	"errors"
	"fmt"
	"strconv"
)

// Variables of the environment.
const (
	VarSandboxes = "DEMESNE_MAX_SANDBOXES"
	VarSlots     = "DEMESNE_JOB_SLOTS"
	VarOutputs   = "DEMESNE_MAX_OUTPUTS"
)

// sandboxes is how many that stay there may be, and outputs how many output directories an MCP server keeps, unless the
// environment says.
const sandboxes, outputs = 64, 1000

// ErrFull says that a user has as many sandboxes as are allowed.
var ErrFull = errors.New("too many sandboxes")

// Sandboxes is how many of those that stay a user may have.
func Sandboxes(env func(string) string) (int, error) { return number(env, VarSandboxes, sandboxes) }

// Outputs is how many output directories an MCP server keeps.
func Outputs(env func(string) string) (int, error) { return number(env, VarOutputs, outputs) }

// Slots is how many jobs run at once, fallback unless the environment says.
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
		return 0, fmt.Errorf("%s %q: not a number from 1 on", variable, v)
	}
	return n, nil
}

// Full is [ErrFull] if n that stay are more than most.
func Full(n, most int) error {
	if n > most {
		return fmt.Errorf("create sandbox: %w (%d)", ErrFull, most)
	}
	return nil
}
