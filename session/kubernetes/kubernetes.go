// Package kubernetes runs background jobs as Jobs of a Kubernetes cluster. A job of demesne is a Job of the same name, which
// is random. The cluster decides about machine, time and resources; demesne in the pod isolates the command.
//
// A PodTemplate named demesne in the namespace describes the pods: their image, which must have demesne's programs, their
// security context and volumes. So the owner of the namespace decides what a pod may do, and a job only adds its command, its
// resources and its deadline. Pods do not see this machine's files: each path of a command line is a path in the pod.
//
// The program demesne does not link a client of Kubernetes. It starts the program of frontends for each request: see package
// worker, which finds the cluster as kubectl does.
package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"demesne/internal/lazy"
	"demesne/internal/text"
	"demesne/runner/client"
	"demesne/runner/jobs"
)

// Name names this engine in --on, and its part of the program of frontends. A namespace may follow it after a colon.
const Name = "kubernetes"

// Cluster is a namespace of the cluster that the user's kubeconfig names.
type Cluster struct {
	Namespace string // empty: the namespace in the kubeconfig
}

var namespaceName = lazy.Regexp{Expr: `^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`}

// New returns the cluster for the words after "kubernetes:", or for none.
func New(namespace string) (*Cluster, error) {
	if namespace != "" && !namespaceName.Get().MatchString(namespace) {
		return nil, fmt.Errorf("%q is not the name of a namespace", namespace)
	}
	return &Cluster{namespace}, nil
}

// Verbs of the program. The namespace follows, and the ids of jobs. Submit reads a jobs.Process from stdin.
const (
	Submit = "submit"
	States = "states"
	Cancel = "cancel"
	Output = "output"
	Follow = "follow"
)

// Problem is the last line of the program's stderr.
type Problem struct {
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
}

// Submit starts a Job.
func (c *Cluster) Submit(ctx context.Context, p jobs.Process) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return c.call(ctx, bytes.NewReader(b), nil, Submit)
}

// States asks for Jobs and their pods.
func (c *Cluster) States(ctx context.Context, ids []string) (states map[string]jobs.State, err error) {
	var out bytes.Buffer
	if err := c.call(ctx, nil, &out, States, ids...); err != nil {
		return nil, err
	}
	err = json.Unmarshal(out.Bytes(), &states)
	for id, s := range states {
		s.Reason, s.Node = text.SafeLine(s.Reason), text.SafeLine(s.Node)
		states[id] = s
	}
	return states, err
}

// Cancel deletes a Job with its pods, also one that has ended.
func (c *Cluster) Cancel(ctx context.Context, id string) error {
	return c.call(ctx, nil, nil, Cancel, id)
}

// Output copies the log of a Job's newest pod.
func (c *Cluster) Output(ctx context.Context, id string, follow bool, to io.Writer) error {
	verb := Output
	if follow {
		verb = Follow
	}
	return c.call(ctx, nil, to, verb, id)
}

// call runs the program.
func (c *Cluster) call(ctx context.Context, in io.Reader, out io.Writer, verb string, ids ...string) error {
	argv, err := client.FindFrontend(Name)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, argv[0], append([]string{argv[1], verb, c.Namespace}, ids...)...)
	cmd.Stdin, cmd.Stdout, cmd.WaitDelay = in, out, time.Second
	var errs text.Last
	errs.Most = 64 << 10
	cmd.Stderr = &errs
	err = cmd.Run()
	if err == nil || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var p Problem
	said := bytes.TrimSpace(errs.End(64 << 10))
	if json.Unmarshal(said[bytes.LastIndexByte(said, '\n')+1:], &p) != nil || p.Error == "" {
		return fmt.Errorf("%s: %w: %s", argv[0], err, text.SafeLine(string(said)))
	}
	if err = errors.New(text.SafeLine(p.Error)); p.Hint != "" {
		err = text.Hinted(err, "%s", text.SafeLine(p.Hint))
	}
	return err
}
