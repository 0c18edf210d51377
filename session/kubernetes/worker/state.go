package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"demesne/runner/jobs"
)

// Labels and annotations of Jobs and pods.
const (
	jobLabel   = "demesne.job"
	listLabel  = "demesne.list"  // of the pods of a list, which States does not read one by one
	itemsNote  = "demesne.items" // on the Job: the number of items
	indexLabel = "batch.kubernetes.io/job-completion-index"
)

// meta is the metadata of an object.
type meta struct {
	Name, UID         string
	CreationTimestamp time.Time
	DeletionTimestamp *time.Time
	Labels            map[string]string
	Annotations       map[string]string
}

type condition struct{ Type, Status, Reason, Message string }

// job is a Job.
type job struct {
	Metadata meta
	Spec     struct{ Completions int }
	Status   struct {
		Conditions        []condition
		Succeeded, Failed int
	}
}

// pod is a pod of a Job.
type pod struct {
	Metadata meta
	Spec     struct {
		NodeName   string
		Containers []struct{ Name string }
	}
	Status struct {
		Phase, Reason, Message string
		Conditions             []condition
		ContainerStatuses      []containerStatus
		InitContainerStatuses  []containerStatus
	}
}

// podList is a list of pods, after whose version a watch may begin.
type podList struct {
	Metadata struct{ ResourceVersion string }
	Items    []pod
}

type containerStatus struct {
	Name  string
	State struct {
		Waiting    *struct{ Reason, Message string }
		Running    *struct{}
		Terminated *struct {
			ExitCode        int
			Reason, Message string
		}
	}
}

func (j *job) list() bool { return j.Metadata.Annotations[itemsNote] != "" }

// maxAsked is how many jobs one request asks for, because a server bounds the length of its line.
const maxAsked = 50

// states returns what the cluster knows about jobs.
func (c *cluster) states(ctx context.Context, ids []string) (map[string]jobs.State, error) {
	states := map[string]jobs.State{}
	for part := range slices.Chunk(ids, maxAsked) {
		var known struct{ Items []job }
		var pods struct{ Items []pod }
		selector := jobLabel + " in (" + strings.Join(part, ",") + ")"
		if err := c.list(ctx, "jobs", selector, &known); err != nil {
			return nil, err
		}
		if err := c.list(ctx, "pods", selector, &pods); err != nil {
			return nil, err
		}
		of := map[string][]pod{}
		for _, p := range pods.Items {
			of[p.Metadata.Labels[jobLabel]] = append(of[p.Metadata.Labels[jobLabel]], p)
		}
		for _, j := range known.Items {
			p := newest(of[j.Metadata.Name])
			if j.list() {
				var err error
				if p, err = c.sample(ctx, &j); err != nil {
					return nil, err
				}
			}
			s := j.state(p)
			if s.Status == jobs.Queued && s.Reason == "" {
				s.Reason = c.refusal(ctx, j.Metadata.Name)
			}
			states[j.Metadata.Name] = s
		}
	}
	return states, nil
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

func (c *cluster) list(ctx context.Context, kind, selector string, to any) error {
	raw, err := c.do(ctx, http.MethodGet, nil, url.Values{"labelSelector": {selector}}, c.path(kind))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return fmt.Errorf("list %s: %w", kind, err)
	}
	return nil
}

// newest returns the last of a Job's pods, or nil.
func newest(pods []pod) (last *pod) {
	for i, p := range pods {
		if last == nil || p.Metadata.CreationTimestamp.After(last.Metadata.CreationTimestamp) {
			last = &pods[i]
		}
	}
	return last
}

// refusal returns why the cluster makes no pod for a Job, such as a quota. It is an event, not part of the Job. It is empty
// without such an event, or if the user may not read events.
func (c *cluster) refusal(ctx context.Context, id string) string {
	raw, err := c.do(ctx, http.MethodGet, nil, url.Values{"fieldSelector": {"reason=FailedCreate,involvedObject.name=" + id}}, c.path("events"))
	var events struct{ Items []struct{ Message string } }
	if err != nil || json.Unmarshal(raw, &events) != nil || len(events.Items) == 0 {
		return ""
	}
	why := events.Items[len(events.Items)-1].Message
	if _, after, ok := strings.Cut(why, " is forbidden: "); ok {
		return after
	}
	return why
}

// hopeless are reasons of a waiting container that need a change of the pod.
var hopeless = []string{"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError", "RunContainerError"}

// state judges a Job by itself and its newest pod, which may be nil.
func (j *job) state(p *pod) (s jobs.State) {
	s.Status = jobs.Queued
	if p != nil {
		s.Node = p.Spec.NodeName
		if s.Status, s.Reason = p.state(); s.Status == jobs.Failed && j.Status.Succeeded+j.Status.Failed > 0 {
			s.Status = jobs.Queued // others of its list could start
		}
	}
	if j.Metadata.DeletionTimestamp != nil {
		s.Status, s.Reason = jobs.Running, "ends"
	}
	for _, c := range j.Status.Conditions {
		if c.Status != "True" || c.Type != "Failed" && c.Type != "Complete" {
			continue
		}
		ended := s.Reason
		s.Status, s.Reason = jobs.Failed, words(c.Reason, c.Message)
		if ended != "" && (c.Reason == "BackoffLimitExceeded" || c.Reason == "FailedIndexes" || c.Type == "Complete") { // the pod says more
			s.Reason = ended
		}
	}
	return s
}

// state returns what the pod's state is for its job. A pod that has ended leaves the judgement to its Job.
func (p *pod) state() (jobs.Status, string) {
	if p.Status.Reason != "" && p.Status.Phase == "Failed" {
		return jobs.Queued, words(p.Status.Reason, p.Status.Message)
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		switch w, t := c.State.Waiting, c.State.Terminated; {
		case w != nil && slices.Contains(hopeless, w.Reason):
			return jobs.Failed, words(w.Reason, w.Message)
		case w != nil && w.Reason == "ErrImagePull":
			return jobs.Queued, words(w.Reason, w.Message)
		case t != nil && (t.ExitCode != 0 || t.Reason != "Completed"):
			return jobs.Running, words(fmt.Sprintf("%s, exit code %d", t.Reason, t.ExitCode), t.Message)
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == "PodScheduled" && c.Status == "False" {
			return jobs.Queued, words(c.Reason, c.Message)
		}
	}
	if p.Status.Phase == "Pending" {
		return jobs.Queued, ""
	}
	return jobs.Running, ""
}

func words(reason, message string) string { return strings.Trim(reason+": "+message, ": ") }

// begun reports whether the pod's log can be read: its container runs, or has ended.
func (p *pod) begun() bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(c containerStatus) bool {
		return c.Name == p.container() && (c.State.Running != nil || c.State.Terminated != nil)
	})
}

// container returns the name of the container with the command.
func (p *pod) container() (name string) {
	for i, c := range p.Spec.Containers {
		if i == 0 || c.Name == containerName {
			name = c.Name
		}
	}
	return name
}
