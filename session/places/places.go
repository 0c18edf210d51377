// Package places has the engines of clusters by the names that --on takes, and what a job there gets from this machine.
package places

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/session/kubernetes"
	"demesne/session/ray"
	"demesne/session/slurm"
)

// Local is the place of jobs on this machine.
const Local = "local"

// Parse checks where a job shall run: local, or an engine with its part, such as slurm:PARTITION. It returns the empty string
// for local, and the address of a cluster that the environment names.
func Parse(on string) (string, error) {
	if on == Local {
		return "", nil
	}
	p, err := Of(on)
	if c, ok := p.(*ray.Cluster); ok && err == nil {
		on = c.On()
	}
	return on, err
}

// Of returns the engine of a job on another machine.
func Of(on string) (jobs.Place, error) {
	kind, part, parted := strings.Cut(on, ":")
	if parted && part == "" {
		return nil, errors.New("no partition, namespace or address after the colon")
	}
	switch kind {
	case slurm.Name:
		return slurm.New(part)
	case kubernetes.Name:
		return kubernetes.New(part)
	case ray.Name:
		return ray.New(part, os.Getenv)
	}
	return nil, fmt.Errorf("is not %s, %s[:PARTITION], %s[:NAMESPACE] or %s[:ADDRESS]", Local, slurm.Name, kubernetes.Name, ray.Name)
}

// Remote reports whether a place does not see this machine's files.
func Remote(on string) bool {
	p, err := Of(on)
	_, remote := p.(jobs.Remote)
	return err == nil && remote
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

// shared are variables that a job on another machine gets if that sees the same files. They name its user, and places that all
// machines see.
var shared = []string{
	"HOME", "USER", "LOGNAME", "PATH", "LANG",
	"DEMESNE_STATE", "DEMESNE_OUTPUT_ROOT", "DEMESNE_IMAGE_STORE", "DEMESNE_DEFAULT_IMAGE", "DEMESNE_LIBEXEC", "DEMESNE_VAULT_KEY",
}

// Shared returns the variables of this environment that a job gets where it sees the same files.
func Shared(getenv func(string) string) []string { return Set(getenv, shared) }

// Set returns the names of variables that this environment has.
func Set(getenv func(string) string, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return getenv(name) == "" })
}

// Needs are what a job on a cluster asks for.
type Needs = jobs.Needs

// Start starts a job on this machine or, if on is not empty, on a cluster. names are of variables that it gets there in addition.
func Start(ctx context.Context, store *jobs.Store, on string, argv, names []string, needs Needs, what any) (*jobs.Job, error) {
	if on == "" {
		return store.Start(argv, what)
	}
	store.Place = Of
	return store.StartOn(ctx, on, jobs.Process{Argv: argv, Shared: Shared(os.Getenv), Env: Set(os.Getenv, names), Needs: needs}, what)
}

// RemoteWord is in place of the id of a job on a machine that does not see this one's files. The job's request follows.
const RemoteWord = jobs.RemoteWord

// AttendRemote is the main function of such a job's process: see [jobs.AttendRemote].
func AttendRemote(ctx context.Context, request string, to io.Writer, run jobs.Run) (int, error) {
	return jobs.AttendRemote(ctx, json.RawMessage(request), to, run)
}
