package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"demesne/runner/jobs"
)

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

// some are the pods that an id names.
type some struct {
	selector string // empty: the cluster does not know the job
	all      bool   // of a list
	alone    bool   // each has one item
}

// find returns the pods of a job, or of an item.
func (c *cluster) find(ctx context.Context, id string) (some, error) {
	id, number, item := strings.Cut(id, "/")
	var known struct{ Items []job }
	if err := c.list(ctx, "jobs", jobLabel+"="+id, &known); err != nil || len(known.Items) == 0 {
		return some{}, err
	}
	j := &known.Items[0]
	if !j.list() {
		return some{selector: jobLabel + "=" + id}, nil
	}
	pods := some{listLabel + "=" + id, !item, j.Metadata.Annotations[itemsNote] == strconv.Itoa(j.Spec.Completions)}
	if item {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || j.Spec.Completions < 1 {
			return some{}, fmt.Errorf("no item %q", number)
		}
		pods.selector += fmt.Sprintf(",%s=%d", indexLabel, (n-1)%j.Spec.Completions)
	}
	return pods, nil
}

// maxLogs is how many logs of a list are read at a time.
const maxLogs = 32

// outputAll copies the logs of a list's pods, several at a time. With follow it continues with the pods that start later.
func (c *cluster) outputAll(ctx context.Context, selector string, follow bool, to io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	var mu, writing sync.Mutex
	seen := map[string]bool{}
	free := make(chan struct{}, maxLogs)
	read := func(p *pod) bool {
		mu.Lock()
		defer mu.Unlock()
		if name := p.Metadata.Name; p.begun() && !seen[name] {
			seen[name] = true
			all.Go(func() {
				free <- struct{}{}
				defer func() { <-free }()
				err := c.log(ctx, p, follow, &wholeLines{to: to, mu: &writing})
				if err != nil && follow { // its machine may have failed; another pod follows, or a later event
					mu.Lock()
					defer mu.Unlock()
					delete(seen, name)
				} else if err != nil {
					cancel(err)
				}
			})
		}
		return false
	}
	for {
		var l podList
		if err := c.list(ctx, "pods", selector, &l); err != nil {
			return err
		}
		last := map[string][]pod{}
		for _, p := range l.Items {
			last[p.Metadata.Labels[indexLabel]] = append(last[p.Metadata.Labels[indexLabel]], p)
		}
		for _, index := range slices.Sorted(maps.Keys(last)) {
			read(newest(last[index]))
		}
		if !follow {
			all.Wait()
			return context.Cause(ctx)
		}
		if _, err := c.watch(ctx, selector, l.Metadata.ResourceVersion, read); err != nil {
			return err
		}
	}
}

// wholeLines is the log of one of several pods.
type wholeLines struct {
	to   io.Writer
	mu   *sync.Mutex
	rest []byte
}

// maxLine bounds a line of a log, in bytes. The line of a result is the longest.
const maxLine = 4 << 20

func (w *wholeLines) Write(b []byte) (int, error) {
	w.rest = append(w.rest, b...)
	end := bytes.LastIndexByte(w.rest, '\n') + 1
	if len(w.rest)-end > maxLine {
		return 0, fmt.Errorf("a line of a pod has more than %d bytes", maxLine)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.to.Write(w.rest[:end])
	w.rest = w.rest[end:]
	return len(b), err
}
