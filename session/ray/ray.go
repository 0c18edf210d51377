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
	_ "embed"
	"encoding/json"
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
//
// A list is one job, whose driver starts a task of Ray for each share. Ray starts a task again elsewhere if its machine ends.
func (c *Cluster) Submit(ctx context.Context, p jobs.Process) error {
	s, err := c.submission(p)
	if err != nil {
		return err
	}
	return c.Engine.Submit(ctx, s)
}

// driver is a program for the Python of Ray's processes.
//
//go:embed list.py
var driver string

// maxShares bounds the tasks of a list. Each starts a process of demesne.
const maxShares = 1000

// plan is what the driver of a list reads.
type plan struct {
	Shares   int               `json:"shares"`
	Parallel int               `json:"parallel"`
	CPUs     float64           `json:"cpus"`
	Memory   int64             `json:"memory"`
	Log      string            `json:"log"`
	Env      map[string]string `json:"env"`
}

func (c *Cluster) submission(p jobs.Process) (submission, error) {
	s := submission{ID: p.ID, CPUs: cmp.Or(p.Needs.CPUs, 1)}
	if p.Needs.Memory > 0 {
		s.Memory = p.Needs.Memory + jobs.Overhead
	}
	s.Env.Variables = map[string]string{addressVariables[0]: c.At} // --on there names the same cluster
	for _, name := range slices.Concat(p.Shared, p.Env) {
		s.Env.Variables[name] = os.Getenv(name)
	}
	if items := len(p.List.Items); items > 0 {
		shares := min(items, maxShares)
		// The driver needs the PATH of Ray's processes, which has their Python. It waits more than it works, so it reserves nothing.
		l := plan{shares, cmp.Or(p.List.Parallel, shares), s.CPUs, s.Memory, p.Log, map[string]string{"PATH": os.Getenv("PATH")}}
		raw, err := json.Marshal(l)
		if err != nil {
			return s, err
		}
		delete(s.Env.Variables, "PATH")
		s.CPUs, s.Memory = 0, 0
		p.Argv = slices.Concat([]string{"python3", "-c", driver, string(raw)}, p.Argv)
	}
	s.Entrypoint = "exec " + text.ShellWords(p.Argv) + " >>" + text.ShellWord(p.Log) + " 2>&1"
	return s, nil
}
