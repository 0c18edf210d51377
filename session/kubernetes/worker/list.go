package worker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"demesne/internal/text"
	"demesne/runner/jobs"
)

// A list is an indexed Job. Each index is a share of the items, and its text is in ConfigMaps, which the pods mount and the Job owns.
const (
	listLabel  = "demesne.list"  // of the pods, which States does not read one by one
	itemsNote  = "demesne.items" // on the Job: the number of items
	indexLabel = "batch.kubernetes.io/job-completion-index"
	listDir    = "/run/demesne-list"
	podsNote   = "demesne.pods" // on the PodTemplate: the most pods of a list
	nodeVar    = "DEMESNE_NODE"

	maxPods  = 1000      // of a list without that note: the user's machine reads the log of each
	partSize = 512 << 10 // bytes of the list in a ConfigMap, which has at most 1 MiB
	maxParts = 16
	maxLogs  = 32 // that are read at a time
)

// addList makes the Job of a pod an indexed one with at most so many pods.
func (spec fields) addList(p jobs.Process, pod fields, most int) error {
	items := len(p.List.Items)
	indexes := min(items, most)
	var sources []any
	for n := range parts(p.List) {
		sources = append(sources, fields{"configMap": fields{"name": part(p.ID, n)}})
	}
	if len(sources) > maxParts {
		return text.Hinted(fmt.Errorf("the list has more than %s", text.FormatBytes(maxParts*partSize)), "split it, or put its text into files that the pods see")
	}
	spec["completionMode"], spec["completions"], spec["parallelism"] = "Indexed", indexes, cmp.Or(min(p.List.Parallel, indexes), indexes)
	spec["backoffLimitPerIndex"] = 0
	delete(spec, "backoffLimit")
	if p.Needs.Time > 0 { // of each pod: the Job waits for machines in between
		pod["activeDeadlineSeconds"] = seconds(p.Needs.Time * time.Duration((items+indexes-1)/indexes))
	}
	volumes, _ := pod["volumes"].([]any)
	pod["volumes"] = append(volumes, fields{"name": "demesne-list", "projected": fields{"sources": sources}})
	c := pod.container()
	mounts, _ := c["volumeMounts"].([]any)
	c["volumeMounts"] = append(mounts, fields{"name": "demesne-list", "mountPath": listDir, "readOnly": true})
	env, _ := c["env"].([]any)
	c["env"] = append(env, fields{"name": nodeVar, "valueFrom": fields{"fieldRef": fields{"fieldPath": "spec.nodeName"}}})
	args, _ := c["args"].([]string)
	c["args"] = append(args, listDir, "$("+nodeVar+")", "$(JOB_COMPLETION_INDEX)", strconv.Itoa(indexes))
	return nil
}

// parts returns the parts of a list's text.
func parts(l jobs.List) [][]byte {
	return slices.Collect(slices.Chunk([]byte(strings.Join(l.Items, "\n")+"\n"), partSize))
}

// part returns the name of a ConfigMap.
func part(id string, n int) string { return fmt.Sprintf("%s-%d", id, n) }

// upload makes the ConfigMaps of a list. The pods of its Job wait for them.
func (c *cluster) upload(ctx context.Context, made []byte, p jobs.Process) error {
	var j job
	if err := json.Unmarshal(made, &j); err != nil {
		return fmt.Errorf("read Job %q: %w", p.ID, err)
	}
	for n, text := range parts(p.List) {
		body, err := json.Marshal(fields{
			"apiVersion": "v1", "kind": "ConfigMap", "binaryData": fields{jobs.ListPart + strconv.Itoa(n): text},
			"metadata": fields{
				"name": part(p.ID, n), "labels": fields{jobLabel: p.ID, "app.kubernetes.io/managed-by": "demesne"},
				"ownerReferences": []any{fields{"apiVersion": "batch/v1", "kind": "Job", "name": p.ID, "uid": j.Metadata.UID}},
			},
		})
		if err != nil {
			return err
		}
		if _, err := c.do(ctx, http.MethodPost, body, nil, c.path("configmaps")); err != nil {
			return err
		}
	}
	return nil
}

func (j *job) list() bool { return j.Metadata.Annotations[itemsNote] != "" }

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

// sample returns a pod of a list that says what the list does: one that runs, or else waits; after its end one that failed.
func (c *cluster) sample(ctx context.Context, j *job) (p *pod, err error) {
	phases := []string{"Running", "Pending"}
	if len(j.Status.Conditions) > 0 {
		phases = []string{"Failed"}
	}
	for _, phase := range phases {
		var pods podList
		raw, err := c.do(ctx, http.MethodGet, nil, url.Values{"labelSelector": {listLabel + "=" + j.Metadata.Name}, "fieldSelector": {"status.phase=" + phase}, "limit": {"1"}}, c.path("pods"))
		if err == nil {
			err = json.Unmarshal(raw, &pods)
		}
		if p = newest(pods.Items); p != nil || err != nil {
			return p, err
		}
	}
	return nil, nil
}

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
