package slurm

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"demesne/internal/text"
	"demesne/runner/jobs"
)

func TestState(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		want         jobs.State
	}{
		{"PENDING", "Resources", jobs.State{Status: jobs.Queued, Reason: "PENDING: Resources"}},
		{"REQUEUE_HOLD", "None", jobs.State{Status: jobs.Queued, Reason: "REQUEUE_HOLD"}},
		{"RUNNING", "None", jobs.State{Status: jobs.Running}},
		{"COMPLETING", "NonZeroExitCode", jobs.State{Status: jobs.Running}},
		{"CANCELLED", "None", jobs.State{Status: jobs.Cancelled, Reason: "CANCELLED"}},
		{"COMPLETED", "None", jobs.State{Status: jobs.Failed, Reason: "COMPLETED"}}, // asked only without a result
		{"TIMEOUT", "TimeLimit", jobs.State{Status: jobs.Failed, Reason: "TIMEOUT: TimeLimit"}},
		{"NODE_FAIL", "NodeDown", jobs.State{Status: jobs.Failed, Reason: "NODE_FAIL: NodeDown"}},
		{"INVENTED", "", jobs.State{Status: jobs.Failed, Reason: "INVENTED"}},
	} {
		if got := state(c.name, c.reason, ""); got != c.want {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestResources(t *testing.T) {
	for _, c := range []struct {
		needs jobs.Needs
		want  []string
	}{
		{jobs.Needs{}, nil},
		{jobs.Needs{Memory: 1 << 30, CPUs: 0.5, Time: 90 * time.Second}, []string{"--mem=1179648K", "--cpus-per-task=1", "--time=4"}},
		{jobs.Needs{Memory: 1, CPUs: 2}, []string{"--mem=131073K", "--cpus-per-task=2"}},
	} {
		if got := resources(c.needs); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q", c.needs, got)
		}
	}
}

// TestScript checks that a shell passes each word on as it is.
func TestScript(t *testing.T) {
	words := []string{"/usr/bin/printf", "%s|", "a b", "'", "$(id)", "\n", `\`, "#"}
	cmd := exec.Command("/bin/sh", "-c", script(words))
	if out, err := cmd.Output(); err != nil || string(out) != "a b|'|$(id)|\n|\\|#|" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestPartition(t *testing.T) {
	for _, name := range []string{"", "debug", "gpu-a100_x.2"} {
		if _, err := New(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"a b", "--wrap=id", "a,b", "-", "\n"} {
		if _, err := New(name); err == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}

func TestAllocation(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want jobs.Needs
	}{
		{nil, jobs.Needs{}},
		{map[string]string{"SLURM_MEM_PER_NODE": "1024", "SLURM_CPUS_ON_NODE": "2"}, jobs.Needs{Memory: 896 << 20, CPUs: 2}},
		{map[string]string{"SLURM_MEM_PER_CPU": "512", "SLURM_CPUS_ON_NODE": "2"}, jobs.Needs{Memory: 896 << 20, CPUs: 2}},
		{map[string]string{"SLURM_MEM_PER_NODE": "-5", "SLURM_CPUS_ON_NODE": "x"}, jobs.Needs{}},
		{map[string]string{"SLURM_MEM_PER_NODE": "9999999999999999"}, jobs.Needs{Memory: (1<<31-1)<<20 - 128<<20}},
	} {
		if got := Allocation(func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("%v: %+v", c.env, got)
		}
	}
}

// TestErrors checks which of the lines that sbatch prints becomes the error.
func TestErrors(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	for _, c := range []struct{ says, want, hint string }{
		{"sbatch: error: invalid partition: x\nsbatch: error: Batch job submission failed", "invalid partition: x", ""},
		{"sbatch: error: lookup failed\nsbatch: fatal: no configuration", "sbatch: no configuration", needsSlurm},
		{"sbatch: error: If munged is up, restart\nsbatch: error: Munge encode failed: No such file\nsbatch: error: authentication error", "sbatch: Munge encode failed: No such file", needsMunge},
		{"slurm_load_jobs error: Zero Bytes were transmitted or received", "sbatch: slurm_load_jobs error: Zero Bytes were transmitted or received", needsMunge},
		{"sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", "sbatch: Batch job submission failed: Unable to contact slurm controller (connect failure)", needsCtld},
		{"", "sbatch: exit status 1", ""},
	} {
		if err := os.WriteFile(dir+"/sbatch", []byte("#!/bin/sh\necho '"+c.says+"' >&2\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := call(t.Context(), "", "sbatch")
		if err == nil || err.Error() != c.want || text.HintOf(err) != c.hint {
			t.Errorf("%q: %v", c.says, err)
		}
	}
}

// TestArray checks the script of an array job, and the one state that its tasks have together.
func TestArray(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	for name, text := range map[string]string{
		"scontrol": "echo 'MaxArraySize            = 4'",
		"sbatch":   "echo \"$@\" >'" + dir + "/args'; cat >'" + dir + "/script'",
		"squeue":   "printf 'j|COMPLETED|None|n1\nj|PENDING|Resources|\nj|RUNNING|None|n2\nj|FAILED|NonZeroExitCode|n1\nk|COMPLETED|None|n1\nk|TIMEOUT|TimeLimit|n2\n'",
	} {
		if err := os.WriteFile(dir+"/"+name, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := jobs.Process{ID: "j", Argv: []string{"attend"}, Needs: jobs.Needs{Time: time.Minute}, List: jobs.List{Items: make([]string, 9), Parallel: 2}}
	if err := (&Cluster{}).Submit(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	args, err1 := os.ReadFile(dir + "/args")
	script, err2 := os.ReadFile(dir + "/script")
	if want := "#!/bin/sh\nexec 'attend' \"$SLURM_ARRAY_TASK_ID\" 4\n"; err1 != nil || err2 != nil || string(script) != want ||
		!strings.Contains(string(args), " --array=0-3%2 --time=5\n") {
		t.Errorf("%q, %q, %v, %v", args, script, err1, err2)
	}
	states, err := (&Cluster{}).States(t.Context(), []string{"j", "k"})
	if err != nil || states["j"] != (jobs.State{Status: jobs.Running, Node: "n2"}) || states["k"].Reason != "TIMEOUT: TimeLimit" {
		t.Errorf("%+v, %v", states, err)
	}
}
