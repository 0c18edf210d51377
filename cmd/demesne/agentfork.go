package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"demesne/agents"
	"demesne/internal/fsutil"
	"demesne/runner"
)

// mostForks is how many attempts --fork starts.
const mostForks = 16

// setForks sets the number of attempts.
func (o *options) setForks(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > mostForks {
		return fmt.Errorf("%q: not a number from 1 to %d", s, mostForks)
	}
	o.forks = n
	return nil
}

func branchStamp() string { return time.Now().UTC().Format("20060102-150405") }

// attempt is one of several sandboxes that get the same task.
type attempt struct {
	code    int
	err     error
	took    time.Duration
	cost    float64
	commits string
	branch  string
}

// forkAgent makes several attempts at one task, each in a sandbox and on a clone of its own, and prints their outcome.
func (a *app) forkAgent(o *options, home string, args []string) (int, error) {
	switch {
	case !o.branch:
		return 0, hinted(errors.New("--fork: needs --branch: attempts cannot share the working directory"), "demesne agent --branch --fork 3 claude -p 'the task'")
	case o.network.ask:
		return 0, hinted(errors.New("--fork: excludes --ask: attempts have no terminal"), "--allow-domain NAME allows a name without a question")
	}
	stamp := branchStamp()
	dir, err := fsutil.StateDir("agents/forks/" + stamp)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return 0, fmt.Errorf("make directory for the attempts' output: %w", fsutil.Reason(err))
	}
	a.say(fmt.Sprintf("agent: %d attempts write to %s/N.stdout and N.stderr", o.forks, dir))
	all := make([]attempt, o.forks)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i] = a.attempt(*o, home, args, dir, fmt.Sprintf("%s-%d", stamp, i+1), i+1) })
	}
	wg.Wait()
	code := all[0].code
	for _, t := range all {
		if t.err == nil {
			code = min(code, t.code)
		}
	}
	if out, err := a.print(attemptsText(all)); err != nil {
		return out, err
	}
	return code, nil
}

// attempt makes one attempt. Its streams are files of dir.
func (a *app) attempt(o options, home string, args []string, dir, stamp string, n int) (result attempt) {
	began := time.Now()
	defer func() {
		if result.took = time.Since(began); result.err != nil && result.code == 0 {
			result.code = codeOf(result.err)
		}
	}()
	own := *a
	o.fresh, o.stamp = true, stamp
	for _, s := range []struct {
		at   **os.File
		name string
	}{{&own.stdin, os.DevNull}, {&own.stdout, filepath.Join(dir, fmt.Sprintf("%d.stdout", n))}, {&own.stderr, filepath.Join(dir, fmt.Sprintf("%d.stderr", n))}} {
		f, err := os.OpenFile(s.name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return attempt{err: err}
		}
		defer f.Close()
		*s.at = f
	}
	t, err := own.newAgentTerminal(&o, home, args)
	if err == nil {
		defer t.close()
		result.code, err = t.run()
		result.cost, _ = t.cost()
		if result.commits = t.branch.commits; result.commits != "" {
			result.branch = t.branch.name
		}
	}
	if result.err = err; err != nil {
		own.report("agent", err)
	}
	return result
}

// attemptsText returns a line for each attempt.
func attemptsText(all []attempt) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ATTEMPT\tEXIT\tTIME\tCOST\tCOMMITS\tBRANCH")
	for i, t := range all {
		commits, branch := t.commits, t.branch
		if branch == "" {
			commits, branch = "0", "-"
		}
		fmt.Fprintf(w, "%d\t%d\t%v\t$%.4f\t%s\t%s\n", i+1, t.code, t.took.Round(100*time.Millisecond), t.cost, commits, branch)
	}
	w.Flush()
	return b.String()
}

// cost returns what the session's requests to its model cost, and how many they were.
func (t *agentTerminal) cost() (dollars float64, requests int) {
	f, err := os.Open(t.record)
	if err != nil {
		return 0, 0 // there was no request
	}
	defer f.Close()
	m := agents.NewMeter(t.agent.Usage(), t.agent.Provider.Prices...)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var r runner.UsageRecord
		if json.Unmarshal(lines.Bytes(), &r) == nil {
			m.Add(r)
		}
	}
	return m.Cost(), m.Requests()
}
