package run

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/cli/stream"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/jobs"
)

// Map returns demesne map.
func Map() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "map", Usage: []string{"[flags] [--] CMD [ARG…] < LIST", "[flags] -c TEXT [ARG…] < LIST"},
			Summary: "run a command for each line of stdin",
			About: `Runs CMD once for each line of stdin, each time in a sandbox of its own. The line replaces {} in the arguments, or is the
last argument if none has {}. In the text of -c nothing is replaced: there the line is "$0", or the last of the arguments.

The output is printed item by item, in the order of the lines. With --output DIR, the files stdout and stderr and the directory out, which
is /out, of item N are in DIR/N instead. The last line of stderr says how many items succeeded, failed or died. A command that exits with
another code than 0 has failed. An item has died if it could not start or ran out of memory, or if its sandbox or its machine ended.

All items are one job, and item N is JOB/N for wait, logs and cancel. demesne jobs JOB lists them. With --on slurm the job is an array job
of Slurm, with --on kubernetes an indexed Job, and with --on ray a job with tasks. The exit code is 0 if all succeeded, 1 if a command failed, and 125 if an item died or was cancelled.`,
			Examples: []cmdline.Example{
				{Says: "check each archive of a directory", Line: `ls *.gz | demesne map --mount .:ro --workdir . -- gzip -t`},
				{Says: "grade 1000 answers on a cluster, with the outputs in directories", Line: "seq 1000 | demesne map --on slurm --parallel 50 --mount .:ro --output graded -- python3 grade.py --task {} --to /out"},
			},
			Operand: cmdline.Argv,
		},
		New: func(a *app.App) app.Options {
			return &mapOptions{runOptions: runOptions{Options: launch.Options{App: a}}}
		},
	}
}

// mapOptions are the options of map: the ones of run that suit many sandboxes at once, and its own.
type mapOptions struct {
	runOptions
	parallel int
	output   string
}

func (o *mapOptions) Flags() cmdline.Flags {
	return append(forMany(o.runOptions.Flags()),
		cmdline.Flag{Group: app.GroupCommand, Long: "parallel", Arg: "N", Set: o.setParallel, Help: "run at most N items at once (default the number of processors; with --on, as many as the cluster allows)"},
		cmdline.Flag{Group: app.GroupResult, Long: "output", Arg: "DIR", Complete: cmdline.Directory, Set: o.setOutput, Help: "write the output of item N below DIR/N"})
}

// forMany returns the flags that suit many sandboxes at once.
func forMany(flags cmdline.Flags, not ...string) cmdline.Flags {
	not = append(not, "interactive", "tty", "commands", "continue-on-error", "key", "replace", "queue", "ttl", "max-age", "pause-idle",
		"name", "publish", "group", "ask", "out", "json", "trace", "manifest", "no-config")
	return slices.DeleteFunc(flags, func(f cmdline.Flag) bool { return slices.Contains(not, f.Long) })
}

func (o *mapOptions) setParallel(s string) (err error) {
	if o.parallel, err = strconv.Atoi(s); err != nil || o.parallel < 1 || o.parallel > 10000 {
		return errors.New("not a number from 1 to 10000")
	}
	return nil
}

func (o *mapOptions) setOutput(s string) (err error) {
	if err = app.CheckInput(s); err == nil {
		o.output, err = filepath.Abs(s)
	}
	return err
}

func (o *mapOptions) Run(args []string) (int, error) {
	if len(args) == 0 && o.Shell == nil && o.Image.Kind == "" {
		why := "no command given"
		if !stream.IsTerminal(o.Stdin) {
			if list, err := readList(o.Stdin); err == nil && len(list) == 0 {
				why += ", and the list on stdin is empty"
			}
		}
		return 0, text.Hinted(errors.New(why), "demesne map --help shows examples")
	}
	list, err := readList(o.Stdin)
	if err != nil {
		return 0, err
	}
	if len(list) == 0 {
		o.Say("map: 0 items")
		return 0, nil
	}
	prepare := o.newRun
	if app.Remote(o.on) {
		prepare = o.newRemote
	}
	c, err := prepare(withItem(args, list[0]))
	if err != nil {
		return 0, err
	}
	if o.unseen = o.output != ""; o.unseen && !app.Remote(o.on) {
		if err := os.MkdirAll(o.output, 0o777); err != nil {
			return 0, err
		}
	}
	if o.parallel == 0 && o.on == "" {
		o.parallel = runtime.NumCPU()
	}
	return jobTool{o.App}.asJob(&o.runOptions, c, jobs.List{Items: list, Parallel: o.parallel})
}

// Bounds of a list.
const (
	maxList     = 256 << 20 // bytes
	maxItems    = 1_000_000
	maxArgument = 128<<10 - 1 // bytes that execve(2) takes in one argument
)

// readList reads the lines of r, which may be hostile.
func readList(r io.Reader) ([]string, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxList+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read stdin: %w", err)
	case len(b) > maxList:
		return nil, fmt.Errorf("stdin is longer than %s", text.FormatBytes(maxList))
	case bytes.Count(b, []byte("\n")) > maxItems:
		return nil, fmt.Errorf("stdin has more than %d lines", maxItems)
	case len(b) == 0:
		return nil, nil
	}
	list := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	for i, line := range list {
		switch {
		case len(line) > maxArgument:
			return nil, fmt.Errorf("line %d: %d bytes are too long for an argument, which has at most %d", i+1, len(line), maxArgument)
		case strings.ContainsRune(line, 0):
			return nil, fmt.Errorf("line %d: has a NUL byte", i+1)
		}
	}
	return list, nil
}

// place is where a line replaces a part of an argument.
const place = "{}"

// withItem returns the arguments for one line.
func withItem(args []string, line string) []string {
	all := slices.Clone(args)
	for i, arg := range all {
		all[i] = strings.ReplaceAll(arg, place, line)
	}
	if !slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, place) }) {
		all = append(all, line)
	}
	return all
}

// into returns writers for the output of an item below --output, beside the logs of its job. done closes them, and says what is lost.
func (o *mapOptions) into(n int, out, errs io.Writer) (_, _ io.Writer, done func() error, err error) {
	if o.output == "" {
		return out, errs, func() error { return nil }, nil
	}
	dir := filepath.Join(o.output, strconv.Itoa(n))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, nil, nil, err
	}
	stdout, err1 := os.Create(filepath.Join(dir, "stdout"))
	stderr, err2 := os.Create(filepath.Join(dir, "stderr"))
	if err := errors.Join(err1, err2, o.runOptions.Flags().Long("out").Set(filepath.Join(dir, "out"))); err != nil {
		return nil, nil, nil, err
	}
	kept, keptErrs := jobs.NewLog(stdout, runner.JobKept), jobs.NewLog(stderr, runner.JobKept)
	return io.MultiWriter(out, kept), io.MultiWriter(errs, keptErrs), func() error {
		return errors.Join(kept.Lost(), keptErrs.Lost(), stdout.Close(), stderr.Close())
	}, nil
}
