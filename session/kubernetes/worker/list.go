package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"demesne/internal/text"
	"demesne/runner/jobs"
)

// A list is an indexed Job. Each index is a share of the items, and its text is in ConfigMaps, which the pods mount and the Job owns.
const (
	listDir  = "/run/demesne-list"
	podsNote = "demesne.pods" // on the PodTemplate: the most pods of a list
	nodeVar  = "NODE_NAME"

	maxPods  = 1000      // of a list without that note: the user's machine reads the log of each
	partSize = 512 << 10 // bytes of the list in a ConfigMap, which has at most 1 MiB
	maxParts = 16
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
