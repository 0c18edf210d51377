// Package slurm runs background jobs on the machines of a Slurm cluster, by its own programs sbatch, squeue and scancel.
//
// A job of demesne is a Slurm job with the same name, which is random. So the queue is found again after a crash between a
// request and its answer. Slurm decides about machine, time and resources; demesne on that machine isolates the command.
// Nothing of demesne listens there, and nothing remains after the job.
//
// The machines must see the caller's home directory (the jobs, their output and images), the working directory and demesne's
// programs at the same paths, as is usual on a cluster. A job's process uses directories of its own on its machine for
// everything else: see [OwnDirectories].
//
// The batch script has only the variables that the job names: Slurm's controller writes a job's environment to its disk.
package slurm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"demesne/internal/lazy"
	"demesne/internal/text"
	"demesne/runner/jobs"
)

// Name names this engine in --on. A partition may follow it after a colon.
const Name = "slurm"

// Cluster is a partition of the cluster that the machine's slurm.conf names.
type Cluster struct {
	Partition string // empty: the default one
}

var partitionName = lazy.Regexp{Expr: `^[A-Za-z0-9_][A-Za-z0-9_.-]*$`}

// New returns the cluster for the words after "slurm:", or for none.
func New(partition string) (*Cluster, error) {
	if partition != "" && !partitionName.Get().MatchString(partition) {
		return nil, fmt.Errorf("%q is not the name of a partition", partition)
	}
	return &Cluster{partition}, nil
}

// Submit starts a batch job. It may be requeued after the failure of a machine.
func (c *Cluster) Submit(ctx context.Context, p jobs.Process) error {
	args := []string{"--parsable", "--requeue", "--ntasks=1", "--chdir=/", "--open-mode=append",
		"--job-name=" + p.ID, "--output=" + escape(p.Log), "--error=" + escape(p.Log), "--export=" + strings.Join(slices.Concat(p.Shared, p.Env), ",")}
	if c.Partition != "" {
		args = append(args, "--partition="+c.Partition)
	}
	batch := script(p.Argv)
	if items := len(p.List.Items); items > 0 {
		tasks, err := c.tasks(ctx, items)
		if err != nil {
			return err
		}
		array := fmt.Sprintf("--array=0-%d", tasks-1)
		if p.List.Parallel > 0 {
			array += fmt.Sprintf("%%%d", p.List.Parallel)
		}
		args = append(args, array)
		p.Needs.Time *= time.Duration((items + tasks - 1) / tasks)
		batch = strings.TrimSuffix(batch, "\n") + fmt.Sprintf(" \"$SLURM_ARRAY_TASK_ID\" %d\n", tasks)
	}
	_, err := call(ctx, batch, "sbatch", append(args, resources(p.Needs)...)...)
	return err
}

// tasks returns how many tasks an array job for so many items has: as many, unless the cluster allows fewer (MaxArraySize, by default
// 1001). Then each task has several items.
func (c *Cluster) tasks(ctx context.Context, items int) (int, error) {
	out, err := call(ctx, "", "scontrol", "show", "config")
	if err != nil {
		return 0, err
	}
	most := 0
	for line := range strings.Lines(out) {
		if name, value, _ := strings.Cut(line, "="); strings.TrimSpace(name) == "MaxArraySize" {
			most, _ = strconv.Atoi(strings.TrimSpace(value))
		}
	}
	if most < 1 {
		return 0, errors.New("the cluster has no array jobs: its MaxArraySize is 0")
	}
	return min(items, most), nil
}

// spare is how much longer than the command's time a job may last: its sandbox starts and ends, and its output is settled.
const spare = 2 * time.Minute

func resources(n jobs.Needs) (args []string) {
	if n.Memory > 0 {
		args = append(args, fmt.Sprintf("--mem=%dK", (n.Memory+jobs.Overhead+1023)/1024))
	}
	if n.CPUs > 0 {
		args = append(args, fmt.Sprintf("--cpus-per-task=%d", int(math.Ceil(n.CPUs))))
	}
	if n.Time > 0 {
		args = append(args, fmt.Sprintf("--time=%d", int(math.Ceil((n.Time+spare).Minutes()))))
	}
	return args
}

// escape protects a path from sbatch's patterns, in which % begins a field and a backslash turns patterns off.
func escape(path string) string {
	return strings.ReplaceAll(path, "%", "%%")
}

// script returns a batch script that becomes argv.
func script(argv []string) string { return "#!/bin/sh\nexec " + text.ShellWords(argv) + "\n" }

// States asks squeue. The tasks of an array job have one name, and together one state. Slurm forgets a job some minutes after its end (MinJobAge).
func (c *Cluster) States(ctx context.Context, ids []string) (map[string]jobs.State, error) {
	out, err := call(ctx, "", "squeue", "--noheader", "--states=all", "--name="+strings.Join(ids, ","), "--format=%j|%T|%r|%N")
	if err != nil {
		return nil, err
	}
	states := map[string]jobs.State{}
	for line := range strings.Lines(out) {
		f := strings.SplitN(strings.TrimSpace(line), "|", 4)
		if len(f) != 4 {
			return nil, fmt.Errorf("squeue: unexpected line %q", text.SafeLine(line))
		}
		now := state(f[1], f[2], f[3])
		if before, other := states[f[0]]; !other || weight(now) > weight(before) {
			states[f[0]] = now
		}
	}
	return states, nil
}

// weight says which state of two tasks is that of their job.
func weight(s jobs.State) int {
	i := slices.Index([]jobs.Status{jobs.Cancelled, jobs.Failed, jobs.Queued, jobs.Running}, s.Status)
	if s.Reason == "COMPLETED" {
		return -1
	}
	return i
}

// state maps a state of squeue(1).
func state(name, reason, node string) jobs.State {
	if reason == "None" {
		reason = ""
	}
	s := jobs.State{Reason: strings.TrimSuffix(name+": "+reason, ": "), Node: node}
	switch name {
	case "PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT":
		s.Status = jobs.Queued
	case "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING":
		s.Status, s.Reason = jobs.Running, ""
	case "CANCELLED", "REVOKED":
		s.Status = jobs.Cancelled
	default: // COMPLETED without a result, FAILED, TIMEOUT, NODE_FAIL, OUT_OF_MEMORY, …
		s.Status = jobs.Failed
	}
	return s
}

// Cancel ends a job, wherever it is.
func (c *Cluster) Cancel(ctx context.Context, id string) error {
	_, err := call(ctx, "", "scancel", "--name="+id)
	return err
}

// Hints for a machine that belongs to no cluster, or to which its controller does not listen.
const (
	needsSlurm = "--on slurm needs Slurm's programs and its slurm.conf on this machine"
	needsMunge = "munge must run on this machine with the cluster's key and time; munge -n | unmunge tests it"
	needsCtld  = "scontrol ping tests the connection to the controller; jobs that run continue"
)

// telling are parts of the line that says most, of all that a program prints.
var telling = []struct{ part, hint string }{
	{": fatal: ", needsSlurm},
	{"Munge encode failed: ", needsMunge},
	{": Zero Bytes were transmitted", needsMunge}, // the controller does not answer what it cannot verify
	{"Unable to contact slurm controller", needsCtld},
}

// call runs one of Slurm's programs and returns its stdout.
func call(ctx context.Context, stdin, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = 10 * time.Second // a busy machine copies the output late: a job would be submitted and lost
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", text.Hinted(fmt.Errorf("%s is not installed", name), needsSlurm)
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s: %w", name, context.Cause(ctx))
	case err != nil:
		return "", problem(name, errs.String(), err)
	}
	return out.String(), nil
}

// problem returns the line of stderr that says why a program failed: a telling one, or the first.
func problem(name, stderr string, err error) error {
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	for _, t := range telling {
		for _, line := range lines {
			if strings.Contains(line, t.part) {
				return text.Hinted(fmt.Errorf("%s: %s", name, words(name, line)), "%s", t.hint)
			}
		}
	}
	return errors.New(cmp.Or(words(name, lines[0]), name+": "+err.Error()))
}

// words returns a line without its source, such as "sbatch: error: ".
func words(name, line string) string {
	for _, source := range []string{name + ": error: ", name + ": fatal: "} {
		line = strings.TrimPrefix(line, source)
	}
	return text.SafeLine(line)
}

// Allocation returns what Slurm set aside for the job of this process.
func Allocation(getenv func(string) string) (n jobs.Needs) {
	number := func(name string) int64 {
		v, _ := strconv.ParseInt(getenv(name), 10, 32)
		return max(v, 0)
	}
	cpus := number("SLURM_CPUS_ON_NODE")
	n.CPUs = float64(cpus)
	if mib := cmp.Or(number("SLURM_MEM_PER_NODE"), cpus*number("SLURM_MEM_PER_CPU")); mib<<20 > jobs.Overhead {
		n.Memory = mib<<20 - jobs.Overhead
	}
	return n
}

// OwnDirectories makes the directories for a runner of this Slurm job alone, and returns the variables that name them. The runner of
// another job would end with that job's processes. remove removes the directories.
func OwnDirectories(getenv func(string) string) (env map[string]string, remove func(), err error) {
	dir, err := os.MkdirTemp(cmp.Or(getenv("TMPDIR"), os.TempDir()), "demesne-job-")
	if err != nil {
		return nil, nil, err
	}
	sandboxes := filepath.Join(dir, "sandboxes")
	return map[string]string{"XDG_RUNTIME_DIR": dir, "DEMESNE_SANDBOX_ROOT": sandboxes, "DEMESNE_LINGER": "0"}, func() { os.RemoveAll(dir) }, nil
}
