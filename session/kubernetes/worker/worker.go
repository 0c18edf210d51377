// Package worker is the part of session/kubernetes that talks to a cluster. The program of frontends runs it for one request:
//
//	demesne-frontend kubernetes VERB NAMESPACE [ID…]
//
// It finds the cluster and the user's credentials as kubectl does: KUBECONFIG, ~/.kube/config, or the service account of a
// pod. From client-go it links only those parts, and sends and reads the few fields of Jobs and pods that it needs: client-go's types of all
// of Kubernetes would make demesne's programs too large.
//
// It never writes a Secret, and reads only the PodTemplate, Jobs, pods, events and logs of one namespace. A list becomes an indexed Job
// with ConfigMaps, which end with it: see list.go.
package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"demesne/internal/text"
	"demesne/runner/jobs"
	"demesne/session/kubernetes"
)

// Main serves one request.
func Main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	err := errors.New("demesne starts this program; users do not")
	if len(os.Args) >= 3 {
		err = serve(ctx, os.Args[1], os.Args[2], os.Args[3:], os.Stdin, os.Stdout)
	}
	if err != nil {
		json.NewEncoder(os.Stderr).Encode(kubernetes.Problem{Error: err.Error(), Hint: text.HintOf(err)})
		os.Exit(1)
	}
}

func serve(ctx context.Context, verb, namespace string, ids []string, in io.Reader, out io.Writer) error {
	c, err := open(namespace)
	if err != nil {
		return err
	}
	if verb != kubernetes.Submit && verb != kubernetes.States && len(ids) != 1 {
		return errors.New("needs the id of one job")
	}
	switch verb {
	case kubernetes.Submit:
		var p jobs.Process
		if err = json.NewDecoder(in).Decode(&p); err == nil {
			err = c.submit(ctx, p)
		}
	case kubernetes.States:
		var states map[string]jobs.State
		if states, err = c.states(ctx, ids); err == nil {
			err = json.NewEncoder(out).Encode(states)
		}
	case kubernetes.Cancel:
		err = c.cancel(ctx, ids[0])
	case kubernetes.Output, kubernetes.Follow:
		err = c.output(ctx, ids[0], verb == kubernetes.Follow, out)
	default:
		return fmt.Errorf("unknown verb %q", verb)
	}
	return c.explain(err)
}
