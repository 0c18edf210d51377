package jupyter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"demesne/internal/fsutil"
	"demesne/internal/procself"
	"demesne/internal/text"
	"demesne/kernels"
	"demesne/kernels/code"
	"demesne/kernels/kernelcmd"
	"demesne/session"
)

// notebook is demesne notebook.
func (f *console) notebook(o *kernelcmd.Options, args, _ []string) (int, error) {
	const use = "demesne notebook run FILE.ipynb"
	switch {
	case len(args) == 0:
		return 0, text.Hinted(errors.New("needs a verb"), use)
	case args[0] != "run":
		return 0, text.Hinted(fmt.Errorf("%q: unknown verb", args[0]), use)
	case len(args) == 1:
		return 0, text.Hinted(errors.New("run: needs a notebook"), use)
	case len(args) > 2:
		return 0, fmt.Errorf("run: unexpected argument %q", args[2])
	}
	return f.runNotebook(o, args[1])
}

// runNotebook executes a notebook, and writes the executed one.
func (f *console) runNotebook(o *kernelcmd.Options, path string) (int, error) {
	file, err := openFile(path, o.Workspace)
	if err != nil {
		return 0, fmt.Errorf("read %q: %w", path, fsutil.Reason(err))
	}
	d, err := readDocument(file)
	file.Close()
	if err != nil {
		return 0, fmt.Errorf("notebook %q: %w", path, err)
	}
	out := o.Out
	if out == "" {
		out = strings.TrimSuffix(path, ".ipynb") + ".out.ipynb"
	}
	o.Out = "" // the sandbox's /out has another directory
	write := func(raw []byte) error {
		_, err := f.Stdout.Write(raw)
		return err
	}
	if out != "-" {
		p, err := openPlace(out, o.Workspace) // before any code runs
		if err != nil {
			return 0, fmt.Errorf("write %q: %w", out, fsutil.Reason(err))
		}
		defer p.close()
		write = func(raw []byte) error { return p.replace(raw, 0o644) }
	}
	failed, err := f.executeDocument(o, d)
	if err != nil {
		return 0, err
	}
	raw, err := d.encode()
	if err == nil {
		err = write(raw)
	}
	if err != nil {
		return 0, fmt.Errorf("write %q: %w", out, fsutil.Reason(err))
	}
	return failed, nil
}

// executeDocument executes all code cells, and returns the exit code.
func (f *console) executeDocument(o *kernelcmd.Options, d document) (int, error) {
	language := d.language()
	if language == "" {
		language = "python"
	}
	co, err := f.options(o, language)
	if err != nil {
		return 0, text.Hinted(err, "--language names the language of the notebook")
	}
	ctx := procself.Ending()
	s := session.New(session.Options{Getenv: f.Getenv})
	defer s.Close()
	k, err := code.Start(ctx, s, co, f.callbacks())
	if err != nil {
		return 0, err
	}
	defer k.Close()
	f.tellInstalled(k)
	if info := languageInfo(k.Kernel()); info != nil {
		d.setLanguageInfo(info)
	}
	cells, err := d.cells()
	if err != nil {
		return 0, err
	}
	n := &execution{console: f, session: k, timeout: o.Timeout, allow: o.AllowErrors, shown: map[string][]map[string]any{}, left: maxNotebook}
	for _, c := range cells {
		c.clear()
	}
	for i, c := range cells {
		if !n.execute(ctx, i+1, c) {
			break
		}
	}
	if ended, ok := errors.AsType[procself.Ended](context.Cause(ctx)); ok {
		return 128 + int(ended), nil
	}
	return n.exit, nil
}

// execution is the execution of a notebook.
type execution struct {
	*console
	session *code.Session
	timeout time.Duration
	allow   bool
	shown   map[string][]map[string]any
	left    int
	exit    int
}

// execute executes one cell, and reports whether the next one may be executed.
func (n *execution) execute(ctx context.Context, number int, c cell) bool {
	source, ok := c.code()
	if !ok {
		return true
	}
	r := &recorder{cell: c, shown: n.shown, left: &n.left}
	res, err := n.session.Execute(ctx, kernels.Execution{Code: source, Timeout: n.timeout, Messages: r.take})
	r.finish()
	var death *code.Death
	switch {
	case errors.As(err, &death):
		all, _ := c["outputs"].([]any)
		c["outputs"] = append(all, map[string]any{"output_type": "error", "ename": "DeadKernelError", "evalue": death.Reason, "traceback": []any{}})
		n.say(fmt.Sprintf("cell %d: the kernel ended: %s", number, death.Reason))
		n.exit = exitCode
		return false
	case err != nil:
		n.say(fmt.Sprintf("cell %d: %v", number, err))
		n.exit = exitFailed
		return false
	}
	if c["execution_count"] == nil && res.Count > 0 {
		c["execution_count"] = res.Count
	}
	if r.dropped > 0 {
		n.say(fmt.Sprintf("cell %d: %d bytes of output were not kept", number, r.dropped))
	}
	fail := res.TimedOut || res.Error != nil
	if !fail || n.allow || c.tagged("raises-exception") && !res.TimedOut {
		return true
	}
	n.tell(number, res, r.failed)
	n.exit = exitCode
	return false
}

// tell reports the failure of a cell.
func (n *execution) tell(number int, res *kernels.Result, failed *kernels.Error) {
	if failed == nil {
		failed = res.Error
	}
	switch {
	case res.TimedOut:
		n.say(fmt.Sprintf("cell %d: interrupted after --timeout %s", number, n.timeout))
	case failed != nil:
		n.say(fmt.Sprintf("cell %d: %s: %s", number, failed.Type, failed.Message))
	}
	if failed != nil {
		for _, line := range failed.Traceback {
			fmt.Fprintln(n.Stderr, strings.TrimRight(forTerminal(line, false), "\n"))
		}
	}
}

// languageInfo asks a kernel for all that it says about its language; nil: no answer.
func languageInfo(k *kernels.Running) any {
	var info struct {
		Language any `json:"language_info"`
	}
	json.Unmarshal(askInfo(k), &info)
	return info.Language
}
