package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"demesne/internal/text"
	"demesne/runner/jobs"
)

const (
	templateName  = "demesne" // of the PodTemplate
	containerName = "demesne" // of the container with the command; otherwise the first

	spare = 2 * time.Minute // how much longer than the command's time a Job may last
	kept  = 24 * time.Hour  // how long the cluster keeps a Job that ended and whose output was not read
)

// fields are an object of the API, most of which this program does not know.
type fields map[string]any

// at returns the object in a field. It makes it if it does not exist.
func (f fields) at(name string) fields {
	inner, ok := f[name].(map[string]any)
	if !ok {
		inner = map[string]any{}
		f[name] = inner
	}
	return inner
}

// submit makes a Job of the namespace's PodTemplate.
func (c *cluster) submit(ctx context.Context, p jobs.Process) error {
	raw, err := c.do(ctx, http.MethodGet, nil, nil, c.path("podtemplates"), templateName)
	if failedWith(err, http.StatusNotFound) {
		return text.Hinted(fmt.Errorf("namespace %q has no PodTemplate %q", c.namespace, templateName),
			"kubectl apply -n %s -k examples/kubernetes/restricted makes one", c.namespace)
	}
	if err != nil {
		return err
	}
	var template struct {
		Metadata meta
		Template fields
	}
	if err := json.Unmarshal(raw, &template); err != nil {
		return fmt.Errorf("read PodTemplate %q: %w", templateName, err)
	}
	pods := maxPods
	if note := template.Metadata.Annotations[podsNote]; note != "" {
		if pods, err = strconv.Atoi(note); err != nil || pods < 1 {
			return fmt.Errorf("annotation %s of PodTemplate %q: not a number of pods", podsNote, templateName)
		}
	}
	job, err := jobOf(p, template.Template, pods, os.LookupEnv)
	if err != nil {
		return err
	}
	body, err := json.Marshal(job)
	if err != nil {
		return err
	}
	raw, err = c.do(ctx, http.MethodPost, body, nil, c.path("jobs"))
	if err != nil || len(p.List.Items) == 0 {
		return err
	}
	if err = c.upload(ctx, raw, p); err != nil {
		err = errors.Join(err, c.remove(context.WithoutCancel(ctx), p.ID))
	}
	return err
}

// jobOf returns a Job with one pod, or with the pods of a list. The cluster starts a pod again only after the failure of its machine.
func jobOf(p jobs.Process, template fields, pods int, lookup func(string) (string, bool)) (fields, error) {
	if template == nil {
		return nil, errors.New("the PodTemplate has no template")
	}
	pod := template.at("spec")
	if err := pod.fill(p, lookup); err != nil {
		return nil, err
	}
	pod["restartPolicy"] = "Never"
	template.at("metadata").at("labels")[jobLabel] = p.ID
	spec := fields{
		"template": template, "backoffLimit": 0, "ttlSecondsAfterFinished": int(kept.Seconds()),
		// An eviction is no failure of the command. The next pod starts when the last one has ended.
		"podFailurePolicy":     fields{"rules": []any{fields{"action": "Ignore", "onPodConditions": []any{fields{"type": "DisruptionTarget", "status": "True"}}}}},
		"podReplacementPolicy": "Failed",
	}
	switch {
	case len(p.List.Items) > 0:
		if err := spec.addList(p, pod, pods); err != nil {
			return nil, err
		}
		delete(template.at("metadata").at("labels"), jobLabel)
		template.at("metadata").at("labels")[listLabel] = p.ID
	case p.Needs.Time > 0:
		spec["activeDeadlineSeconds"] = seconds(p.Needs.Time)
	}
	meta := fields{"name": p.ID, "labels": fields{jobLabel: p.ID, "app.kubernetes.io/managed-by": "demesne"}}
	if items := len(p.List.Items); items > 0 {
		meta["annotations"] = fields{itemsNote: strconv.Itoa(items)}
	}
	return fields{"apiVersion": "batch/v1", "kind": "Job", "spec": spec, "metadata": meta}, nil
}

// seconds returns how long a pod may last whose commands last so long.
func seconds(d time.Duration) int { return int(math.Ceil((d + spare).Seconds())) }

// container returns the container of a pod that gets the command, or nil.
func (pod fields) container() (container fields) {
	all, _ := pod["containers"].([]any)
	for i, one := range all {
		if c, ok := one.(map[string]any); ok && (i == 0 || c["name"] == containerName) {
			container = c
		}
	}
	return container
}

// literal protects a text from the cluster, which replaces $(NAME) and $$ in arguments and variables.
func literal(s string) string { return strings.ReplaceAll(s, "$", "$$") }

// fill gives the container of a pod the command, its variables and its resources.
func (pod fields) fill(p jobs.Process, lookup func(string) (string, bool)) error {
	container := pod.container()
	if container == nil {
		return errors.New("the PodTemplate has no container")
	}
	if container["command"] == nil {
		container["command"] = []string{"demesne"}
	}
	container["args"] = []string{"attend-job", jobs.RemoteWord, literal(string(p.Request))}
	env, _ := container["env"].([]any)
	for _, name := range p.Env {
		if value, ok := lookup(name); ok {
			env = append(env, fields{"name": name, "value": literal(value)})
		}
	}
	container["env"] = env
	set := func(name, value string) {
		r := container.at("resources")
		fields(r).at("requests")[name], fields(r).at("limits")[name] = value, value
	}
	if p.Needs.Memory > 0 {
		set("memory", fmt.Sprint(p.Needs.Memory+jobs.Overhead))
	}
	if p.Needs.CPUs > 0 {
		set("cpu", fmt.Sprintf("%dm", int64(math.Ceil(p.Needs.CPUs*1000))))
	}
	return nil
}

// remove deletes a Job. The cluster keeps it until its pods have ended.
func (c *cluster) remove(ctx context.Context, id string) error {
	_, err := c.do(ctx, http.MethodDelete, []byte(`{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Foreground"}`), nil, c.path("jobs"), id)
	if failedWith(err, http.StatusNotFound) {
		return nil
	}
	return err
}
