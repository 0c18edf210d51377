package tree

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"demesne/agents"
	"demesne/runner"
	"demesne/session"
)

// settle writes the results of a run whose sandbox was removed, and puts all files into the output directory. why is the
// cause with which the run was ended, or nil.
func (n *node) settle(a *attempts, done *session.RunResult, err, why error) (*agents.Result, error) {
	defer a.close()
	var ended *runner.Result
	if done != nil {
		ended = done.Result
	}
	a.ended(ended)
	res := &agents.Result{RunResult: session.RunResult{Job: n.id, OutputDir: n.dirs.out, Result: n.unfinished()}}
	if ended != nil {
		res.Result, res.Stderr = ended, session.Tail(done.Stderr)
	}
	switch reason, over := overBudget(why); {
	case over:
		res.Result.Reason, res.Result.ExitCode, res.Result.Detail = runner.OverBudget, 137, reason
		err = nil
	case why != nil:
		err = why
	case err == nil:
		err = a.failure(res.Result, res.Stderr.Text)
	}
	if err != nil && res.Result.ExitCode == 0 {
		res.Result.ExitCode = ExitFailed
	}
	res.Result.Out, res.Result.Started, res.Result.Seconds = n.dirs.out, n.began.UTC(), time.Since(n.began).Truncate(time.Millisecond).Seconds()
	answer := a.events.Final()
	res.Stdout = session.Tail{Text: answer, Bytes: int64(len(answer))}
	reason := reasonOf(res.Result, err)
	r := n.results(res.Result, reason)
	res.Cost = r.Cost()
	if werr := n.writeResults(a, res, r); werr != nil {
		n.note("%v", werr)
	}
	code := res.Result.ExitCode
	end := Notice{Event: agents.Event{Kind: NoticeEnded, Text: reason}, ExitCode: &code, Total: res.Total, Output: n.dirs.out}
	if n.dirs.stays {
		end.Conversation = n.dirs.start()
	}
	n.show(end)
	if err != nil {
		return res, fmt.Errorf("run agent: %w", err)
	}
	return res, nil
}

// unfinished is the result of a program whose end is not known.
func (n *node) unfinished() *runner.Result {
	return &runner.Result{ExitCode: ExitFailed, Reason: runner.Lost, Out: n.dirs.out}
}

// reasonOf returns why a run ended, unless its program ended by itself with its work done.
func reasonOf(r *runner.Result, err error) string {
	if err != nil {
		return err.Error()
	}
	if r.Reason == runner.Exited {
		return ""
	}
	return cmp.Or(r.Detail, string(r.Reason))
}

// cost returns the usage of n so far, alone and with all descendants.
func (n *node) cost() *session.Cost {
	c := &session.Cost{Own: n.asked.meter.Cost(), PerModel: map[string]session.Tokens{}}
	c.Total = n.budget.total().cost
	n.addModels(c.PerModel)
	return c
}

// addModels adds the tokens of n and its descendants.
func (n *node) addModels(all map[string]session.Tokens) {
	for model, t := range n.asked.meter.PerModel() {
		sum := all[model]
		sum.Input, sum.Output = sum.Input+t.Input, sum.Output+t.Output
		sum.CacheCreation, sum.CacheRead = sum.CacheCreation+t.CacheCreation, sum.CacheRead+t.CacheRead
		all[model] = sum
	}
	for _, c := range n.agents() {
		c.node.addModels(all)
	}
}

// agents returns the children that are agents.
func (n *node) agents() (all []*child) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.children {
		if c.node != nil {
			all = append(all, c)
		}
	}
	return all
}

func (n *node) writeUsage() error {
	root, err := os.OpenRoot(n.dirs.sidecar)
	if err != nil {
		return fmt.Errorf("write usage: %w", err)
	}
	defer root.Close()
	if err := n.asked.meter.WriteFiles(root); err != nil {
		return fmt.Errorf("write usage: %w", err)
	}
	return nil
}

// writeResults writes the files that describe the run, first where no sandbox can reach them. It delivers what it has also after
// an error, since files of a sandbox stay at the names that it does not replace.
func (n *node) writeResults(a *attempts, res *agents.Result, r *agents.Results) error {
	root, err := os.OpenRoot(n.dirs.sidecar)
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	defer root.Close()
	err = errors.Join(n.asked.meter.WriteFiles(root), r.Write(root), root.WriteFile(fileAnswer, []byte(res.Stdout.Text), 0o600))
	if home, herr := os.OpenRoot(n.dirs.home); herr == nil {
		err = errors.Join(err, a.events.WriteAttribution(root, home))
		home.Close()
	}
	if err = errors.Join(err, a.transcript.lost, a.stderr.lost, n.dirs.deliver()); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

// results describes a run that has ended, with its children.
func (n *node) results(res *runner.Result, reason string) *agents.Results {
	r := agents.Results{JobID: n.id, Tool: n.req.Tool(), Name: n.name, Depth: n.depth, ExitCode: res.ExitCode, Reason: reason}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.children {
		r.Children = append(r.Children, c.results(n.depth+1))
	}
	r.Sum(n.asked.meter)
	n.ended = r
	return &r
}

func (c *child) results(depth int) agents.Results {
	if c.node != nil {
		c.node.mu.Lock()
		defer c.node.mu.Unlock()
		return c.node.ended
	}
	return agents.Results{JobID: c.id, Tool: c.tool, Name: c.name, Depth: depth, ExitCode: c.exitCode}
}
