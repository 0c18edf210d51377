// Package ray runs background jobs as jobs of a Ray cluster, by the Jobs API of its dashboard. A job of demesne has Ray's job of
// the same submission id, which is random. Ray decides about machine and time; demesne on that machine isolates the command.
//
// The machines must see the caller's files at the same paths, as for package slurm, and Ray's processes must have the caller's user.
// The command is in the job's directory: the entrypoint, which is text for a shell, has only demesne's path and paths of the job.
// Ray's dashboard shows the values of the variables that the job names.
package ray

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"demesne/internal/text"
	"demesne/runner/jobs"
	"demesne/session/engines"
)

// Name names this engine in --on, and its part of the program of frontends. An address may follow it after a colon.
const Name = "ray"

// Cluster is the cluster whose dashboard has an address.
type Cluster struct{ engines.Engine }

// Variables that name the dashboard, as for Ray's own client.
var addressVariables = []string{"RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"}

// defaultAddress is of a dashboard on this machine.
const defaultAddress = "http://127.0.0.1:8265"

// New returns the cluster for the words after "ray:", or for the environment's.
func New(address string, getenv func(string) string) (*Cluster, error) {
	from := "address"
	for _, name := range addressVariables {
		if address == "" && getenv(name) != "" {
			address, from = getenv(name), name
		}
	}
	address = cmp.Or(address, defaultAddress)
	if from == "address" && !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err == nil && u.User != nil {
		return nil, text.Hinted(fmt.Errorf("%s %q has credentials", from, u.Redacted()), "RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH has the cluster's token")
	}
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, text.Hinted(fmt.Errorf("%s %q is not of a dashboard of Ray", from, address), "--on ray:http://HOST:8265 names one")
	}
	return &Cluster{engines.Engine{Name: Name, At: strings.TrimRight(u.String(), "/")}}, nil
}

// On returns the cluster's name for --on, whatever the environment.
func (c *Cluster) On() string { return Name + ":" + c.At }

// submission is a request of the Jobs API.
type submission struct {
	Entrypoint string `json:"entrypoint"`
	ID         string `json:"submission_id"`
	Env        struct {
		Variables map[string]string `json:"env_vars"`
	} `json:"runtime_env"`
	CPUs   float64 `json:"entrypoint_num_cpus"`
	Memory int64   `json:"entrypoint_memory,omitempty"`
}

// Submit starts a job. Without a number of processors it reserves one: otherwise Ray would start all jobs on its head.
func (c *Cluster) Submit(ctx context.Context, p jobs.Process) error {
	if len(p.List.Items) > 0 {
		return text.Hinted(errors.New("ray takes no lists"), "demesne.ray.map of demesne's package for Python executes a command for many inputs")
	}
	return c.Engine.Submit(ctx, c.submission(p))
}

func (c *Cluster) submission(p jobs.Process) submission {
	s := submission{ID: p.ID, CPUs: cmp.Or(p.Needs.CPUs, 1)}
	if p.Needs.Memory > 0 {
		s.Memory = p.Needs.Memory + jobs.Overhead
	}
	s.Entrypoint = "exec " + text.ShellWords(p.Argv) + " >>" + text.ShellWord(p.Log) + " 2>&1"
	s.Env.Variables = map[string]string{addressVariables[0]: c.At} // --on there names the same cluster
	for _, name := range slices.Concat(p.Shared, p.Env) {
		s.Env.Variables[name] = os.Getenv(name)
	}
	return s
}
