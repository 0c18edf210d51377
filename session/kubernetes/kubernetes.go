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
	"context"
	"fmt"
	"io"

	"demesne/internal/lazy"
	"demesne/runner/jobs"
	"demesne/session/engines"
)

// Name names this engine in --on, and its part of the program of frontends. A namespace may follow it after a colon.
const Name = "kubernetes"

// Cluster is a namespace of the cluster that the user's kubeconfig names, or with an empty one the namespace in the kubeconfig.
type Cluster struct{ engines.Engine }

var namespaceName = lazy.Regexp{Expr: `^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`}

// New returns the cluster for the words after "kubernetes:", or for none.
func New(namespace string) (*Cluster, error) {
	if namespace != "" && !namespaceName.Get().MatchString(namespace) {
		return nil, fmt.Errorf("%q is not the name of a namespace", namespace)
	}
	return &Cluster{engines.Engine{Name: Name, At: namespace}}, nil
}

// Verbs of the program beside an engine's own.
const (
	Output = "output"
	Follow = "follow"
)

// Submit starts a Job.
func (c *Cluster) Submit(ctx context.Context, p jobs.Process) error { return c.Engine.Submit(ctx, p) }

// Output copies the log of a Job's newest pod. Cancel deletes a Job with its pods, also one that has ended.
func (c *Cluster) Output(ctx context.Context, id string, follow bool, to io.Writer) error {
	verb := Output
	if follow {
		verb = Follow
	}
	return c.Call(ctx, nil, to, verb, id)
}
