package integration

import (
	"os"
	"strings"
	"testing"
)

// TestPlacesAlike checks that each engine of --on has the same flags, refusals, exit codes and hints, at each verb. No engine is here.
func TestPlacesAlike(t *testing.T) {
	b := newBox(t)
	b.keepsJobs()
	b.extra = append(b.extra, "KUBECONFIG="+b.file("kubeconfig", `{"apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "x"}}],
		"clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}]}`, 0o600), "RAY_API_SERVER_ADDRESS=http://127.0.0.1:1", "PATH="+b.mkdir("bin"))
	os.Symlink("/bin/sh", b.dir+"/bin/sh")
	verbs := [][]string{{"run"}, {"map"}, {"agent", "run"}}
	for on, answer := range map[string]string{"slurm": " is not installed", "kubernetes": "no answer from the API server", "kubernetes:work": "no answer from the API server", "ray": "127.0.0.1:1", "ray:http://127.0.0.1:1": "127.0.0.1:1"} {
		for _, verb := range verbs {
			refused := func(want string, args ...string) {
				t.Helper()
				r := b.over("one\n", append(append(append([]string{}, verb...), "--on", on), args...)...)
				if r.code != 125 || r.stdout != "" || !strings.Contains(r.stderr, want) {
					t.Errorf("%s %s %q: %+v", verb, on, args, r)
				}
			}
			line := []string{"--", "true"}
			if verb[0] == "agent" {
				line = []string{"--script", "true", "Work."}
			}
			if verb[0] == "run" {
				refused("name something of this machine", append([]string{"--name", "n"}, line...)...)
			}
			if verb[0] != "agent" {
				refused("cluster's disk", append([]string{"--secret", "DEMESNE_TEST_SECRET", "--secret-for", "DEMESNE_TEST_SECRET=good.test"}, line...)...)
				refused("not set in this environment", append([]string{"--env", "UNSET_HERE"}, line...)...)
			}
			refused(": not a", append([]string{"--memory", "much"}, line...)...)
			refused(answer, line...)
			refused("\nhint: ", line...)
		}
	}
	if r := b.demesne("jobs", "-q"); r.stdout != "" {
		t.Errorf("a refused job is in the list: %+v", r)
	}
	(&cluster{box: b, on: "local"}).alike(t)
}
