package machine

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/doctor/diagnose"
)

// podLine is a line that a pod's spec lacks, and the features that it gives.
type podLine struct {
	Path     string   `json:"path"`
	Value    string   `json:"value"`
	Features []string `json:"features"`
}

const containerContext = "spec.containers[*].securityContext."

// podHere collects the lines that the spec of this pod lacks.
func podHere(probes []runner.Probe) ([]podLine, error) {
	if diagnose.Read("").Container != diagnose.Kubernetes {
		return nil, text.Hinted(errors.New("--pod: this is not a pod of Kubernetes"), "kubectl exec POD -- demesne check --pod")
	}
	ids, err := os.ReadFile("/proc/self/uid_map")
	return podLines(probes, strings.Join(strings.Fields(string(ids)), " ") != "0 0 4294967295"), err
}

func podText(lines []podLine) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%s: %s   # %s\n", l.Path, l.Value, text.SafeLine(strings.Join(l.Features, ", ")))
	}
	return cmp.Or(b.String(), "the spec of the pod lacks nothing\n")
}

// podLines collects the lines of a pod's spec that fixes name. userns says that the pod has a user namespace, without which
// Kubernetes refuses procMount: Unmasked.
func podLines(probes []runner.Probe, userns bool) (all []podLine) {
	add := func(path, value, feature string) {
		i := slices.IndexFunc(all, func(l podLine) bool { return l.Path == path })
		if i < 0 {
			i, all = len(all), append(all, podLine{Path: path, Value: value})
		}
		if !slices.Contains(all[i].Features, feature) {
			all[i].Features = append(all[i].Features, feature)
		}
	}
	for _, p := range probes {
		fix, _, _ := strings.Cut(p.Fix, "   # ")
		if value, ok := strings.CutPrefix(fix, "runtimeClassName: "); ok {
			add("spec.runtimeClassName", value, p.Name)
		}
		inner, ok := strings.CutPrefix(fix, "securityContext: {")
		if !ok {
			continue
		}
		for _, field := range fieldsOf(strings.TrimSuffix(inner, "}")) {
			name, value, _ := strings.Cut(field, ": ")
			if name == "procMount" && !userns {
				add("spec.hostUsers", "false", p.Name)
			}
			add(containerContext+name, value, p.Name)
		}
	}
	return all
}

// fieldsOf returns the fields of a map in YAML's flow style, without its braces.
func fieldsOf(s string) (all []string) {
	depth, start := 0, 0
	for i, c := range s {
		switch c {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			if depth == 0 {
				all = append(all, strings.TrimSpace(s[start:i]))
				start = i + 1
			}
		}
	}
	return append(all, strings.TrimSpace(s[start:]))
}
