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

// output copies the present log of a Job's newest pod.
func (c *cluster) output(ctx context.Context, id string, to io.Writer) error {
	var l podList
	if err := c.list(ctx, "pods", jobLabel+"="+id, &l); err != nil {
		return err
	}
	if p := newest(l.Items, id); p != nil && p.begun() {
		return c.log(ctx, p, false, to)
	}
	return nil
}

// follow waits for a pod of a Job, and copies its log until it has ended. It returns early if the pod cannot start.
func (c *cluster) follow(ctx context.Context, id string, to io.Writer) error {
	for {
		var l podList
		if err := c.list(ctx, "pods", jobLabel+"="+id, &l); err != nil {
			return err
		}
		p := newest(l.Items, id)
		if p == nil || !p.settled() {
			var err error
			if p, err = c.watch(ctx, id, l.Metadata.ResourceVersion); err != nil {
				return err
			}
		}
		switch {
		case p == nil: // the server ended the watch
			continue
		case !p.begun():
			return nil
		}
		return c.log(ctx, p, true, to)
	}
}

// settled reports whether the pod has a log, or never will have one.
func (p *pod) settled() bool {
	status, _ := p.state()
	return p.begun() || status == jobs.Failed || p.Status.Phase == "Failed"
}

// watch returns the first pod of a Job that is settled.
func (c *cluster) watch(ctx context.Context, id, version string) (*pod, error) {
	r, err := c.stream(ctx, http.MethodGet, nil, url.Values{"labelSelector": {jobLabel + "=" + id}, "watch": {"1"}, "resourceVersion": {version}}, c.path("pods"))
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
		case e.Object.settled():
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
