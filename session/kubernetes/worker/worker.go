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
	"net/http"
	"net/url"
	"strings"

	"demesne/runner/jobs"
	"demesne/session/engines"
	"demesne/session/kubernetes"
)

// Main serves one request.
func Main() { engines.Main(serve) }

func serve(ctx context.Context, verb, namespace string, ids []string, in io.Reader, out io.Writer) error {
	c, err := open(namespace)
	if err != nil {
		return err
	}
	if verb != engines.Submit && verb != engines.States && len(ids) != 1 {
		return errors.New("needs the id of one job")
	}
	switch verb {
	case engines.Submit:
		var p jobs.Process
		if err = json.NewDecoder(in).Decode(&p); err == nil {
			err = c.submit(ctx, p)
		}
	case engines.States:
		var states map[string]jobs.State
		if states, err = c.states(ctx, ids); err == nil {
			err = json.NewEncoder(out).Encode(states)
		}
	case engines.Cancel:
		err = c.cancel(ctx, ids[0])
	case kubernetes.Output, kubernetes.Follow:
		err = c.output(ctx, ids[0], verb == kubernetes.Follow, out)
	default:
		return fmt.Errorf("unknown verb %q", verb)
	}
	return c.explain(err)
}

// cancel deletes a Job, or ends an item of a list: a pod that it has for itself, or what it does in a pod with other items, which sees
// the change within two minutes.
func (c *cluster) cancel(ctx context.Context, id string) error {
	id, number, item := strings.Cut(id, "/")
	if !item {
		return c.remove(ctx, id)
	}
	pods, err := c.find(ctx, id+"/"+number)
	if err != nil || pods.selector == "" {
		return err
	}
	body, err := json.Marshal(fields{"data": fields{jobs.ListCancel + number: `"cli"`}})
	if err == nil {
		_, err = c.do(ctx, http.MethodPatch, body, nil, c.path("configmaps"), part(id, 0))
	}
	if err == nil && pods.alone {
		_, err = c.do(ctx, http.MethodDelete, nil, url.Values{"labelSelector": {pods.selector}}, c.path("pods"))
	}
	return err
}
