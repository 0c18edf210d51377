package app

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/session"
	"demesne/session/slurm"
)

// PlaceLocal is the place of jobs on this machine.
const PlaceLocal = "local"

// Jobs opens the user's background jobs, on this machine and on clusters.
func (a *App) Jobs() (*jobs.Store, error) {
	store, err := a.Session(session.Options{}).Jobs()
	if err == nil {
		store.Place = place
	}
	return store, err
}

// ParsePlace checks where a job shall run: local, or slurm[:PARTITION]. It returns the empty string for local.
func ParsePlace(on string) (string, error) {
	if on == PlaceLocal {
		return "", nil
	}
	_, err := place(on)
	return on, err
}

// place returns the engine of a job on another machine.
func place(on string) (jobs.Place, error) {
	kind, rest, parted := strings.Cut(on, ":")
	switch {
	case kind != slurm.Name:
		return nil, fmt.Errorf("is not %s or %s[:PARTITION]", PlaceLocal, slurm.Name)
	case parted && rest == "":
		return nil, errors.New("no partition after the colon")
	}
	return slurm.New(rest)
}

// SettleIn gives the process of a job on a cluster's machine directories of its own. It returns the engine's allocation, which takes the
// place of default limits.
func (a *App) SettleIn() (allocation runner.Limits, leave func(), err error) {
	n := slurm.Allocation(a.Getenv)
	env, leave, err := slurm.OwnDirectories(a.Getenv)
	for name, value := range env {
		err = errors.Join(err, os.Setenv(name, value))
	}
	return runner.Limits{Memory: n.Memory, CPUs: n.CPUs}, leave, err
}
