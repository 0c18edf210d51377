package worker

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"

	"demesne/runner/jobs"
)

// podList is a list of pods, after whose version a watch may begin.
type podList struct {
	Metadata struct{ ResourceVersion string }
	Items    []pod
}

// output copies the log of what an id names: of a Job's newest pod, of an item's, or of all pods of a list. With follow it waits for the pod,
// and copies its log until it has ended. It returns early if the pod cannot start.
func (c *cluster) output(ctx context.Context, id string, follow bool, to io.Writer) error {
	pods, err := c.find(ctx, id)
	switch {
	case err != nil || pods.selector == "":
		return err
	case pods.all:
		return c.outputAll(ctx, pods.selector, follow, to)
	}
	for {
		var l podList
		if err := c.list(ctx, "pods", pods.selector, &l); err != nil {
			return err
		}
		p := newest(l.Items)
		if follow && (p == nil || !p.settled()) {
			if p, err = c.watch(ctx, pods.selector, l.Metadata.ResourceVersion, (*pod).settled); err != nil {
				return err
			}
		}
		switch {
		case p == nil && follow: // the server ended the watch
			continue
		case p == nil || !p.begun():
			return nil
		}
		return c.log(ctx, p, follow, to)
	}
}

// settled reports whether the pod has a log, or never will have one.
func (p *pod) settled() bool {
	status, _ := p.state()
	return p.begun() || status == jobs.Failed || p.Status.Phase == "Failed"
}

// watch returns the first changed pod that is wanted, or nil if the server ends the watch before.
func (c *cluster) watch(ctx context.Context, selector, version string, wanted func(*pod) bool) (*pod, error) {
	r, err := c.stream(ctx, http.MethodGet, nil, url.Values{"labelSelector": {selector}, "watch": {"1"}, "resourceVersion": {version}}, c.path("pods"))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for d := json.NewDecoder(r); ; {
		var e struct {
			Type   string
			Object pod
		}
		switch err := d.Decode(&e); {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil, nil
		case err != nil:
			return nil, err
		case e.Type == "ERROR":
			return nil, nil
		case wanted(&e.Object):
			return &e.Object, nil
		}
	}
}

// log copies the log of a pod.
func (c *cluster) log(ctx context.Context, p *pod, follow bool, to io.Writer) error {
	query := url.Values{"container": {p.container()}}
	if follow {
		query.Set("follow", "true")
	}
	r, err := c.stream(ctx, http.MethodGet, nil, query, c.path("pods"), p.Metadata.Name, "log")
	if failedWith(err, http.StatusNotFound) { // removed meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(to, r)
	return err
}
