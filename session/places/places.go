// Package places has the engines of clusters by the names that --on takes, and what a job there gets from this machine.
package places

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/session/slurm"
)

// Local is the place of jobs on this machine.
const Local = "local"

// Parse checks where a job shall run: local, or slurm[:PARTITION]. It returns the empty string for local.
func Parse(on string) (string, error) {
	if on == Local {
		return "", nil
	}
	_, err := Of(on)
	return on, err
}

// Of returns the engine of a job on another machine.
func Of(on string) (jobs.Place, error) {
	kind, rest, parted := strings.Cut(on, ":")
	switch {
	case kind != slurm.Name:
		return nil, fmt.Errorf("is not %s or %s[:PARTITION]", Local, slurm.Name)
	case parted && rest == "":
		return nil, errors.New("no partition after the colon")
	}
	return slurm.New(rest)
}

// SettleIn gives the process of a job on a cluster's machine directories of its own. It returns the engine's allocation, which takes the
// place of default limits.
func SettleIn(getenv func(string) string) (allocation runner.Limits, leave func(), err error) {
	n := slurm.Allocation(getenv)
	env, leave, err := slurm.OwnDirectories(getenv)
	for name, value := range env {
		err = errors.Join(err, os.Setenv(name, value))
	}
	return runner.Limits{Memory: n.Memory, CPUs: n.CPUs}, leave, err
}

// shared are variables that a job on another machine gets. They name its user, and places that all machines see.
var shared = []string{
	"HOME", "USER", "LOGNAME", "PATH", "LANG",
	"DEMESNE_STATE", "DEMESNE_OUTPUT_ROOT", "DEMESNE_IMAGE_STORE", "DEMESNE_DEFAULT_IMAGE", "DEMESNE_LIBEXEC", "DEMESNE_VAULT_KEY",
}

// Exported returns the variables of this environment that a job on another machine gets: the shared ones, and those with the given names.
func Exported(getenv func(string) string, names ...string) []string {
	all := slices.Concat(shared, names)
	return slices.DeleteFunc(all, func(name string) bool { return getenv(name) == "" })
}

// Needs are what a job on a cluster asks for.
type Needs = jobs.Needs

// Start starts a job on this machine or, if on is not empty, on a cluster. names are of variables that it gets there in addition.
func Start(ctx context.Context, store *jobs.Store, on string, argv, names []string, needs Needs, what any) (*jobs.Job, error) {
	if on == "" {
		return store.Start(argv, what)
	}
	store.Place = Of
	return store.StartOn(ctx, on, jobs.Process{Argv: argv, Env: Exported(os.Getenv, names...), Needs: needs}, what)
}
