package session

import (
	"context"
	"errors"
	"slices"

	"demesne/runner"
	"demesne/runner/ipc"
)

// steps describes a list of commands for one sandbox.
type steps struct {
	List []runner.Step
	GoOn bool              // the list does not end with the first failure
	Each func(int) Streams `json:"-"` // the streams of each command; nil: its output is collected
	Done func(*RunResult)  `json:"-"` // called with the result of each command; nil: nothing
}

// RunSteps runs the list of r in a new sandbox, and removes the sandbox, unless it has a key. It returns the results of
// the commands that ran. A command that does not exist has a result too, with exit code 127. r has what the commands
// share; Complete, Logs and Next have no effect.
func (r RunOptions) RunSteps(ctx context.Context, s *Service, c CreateOptions, cb Callbacks) ([]*RunResult, error) {
	keyed := c.Spec.Key != ""
	if !keyed {
		c.Spec.Lifetime = runner.Attached
	}
	sb, err := s.Create(ctx, c, cb)
	if err != nil {
		return nil, err
	}
	if !keyed {
		defer s.Remove(context.WithoutCancel(ctx), sb.ID)
	}
	cb.Made = nil // it was called
	return r.ExecSteps(ctx, s, sb.ID, cb)
}

// ExecSteps is RunSteps in a persistent sandbox.
func (r RunOptions) ExecSteps(ctx context.Context, s *Service, idOrName string, cb Callbacks) (all []*RunResult, err error) {
	for i := range r.Steps.List {
		step, one := &r.Steps.List[i], r
		one.Command = step.Command(r.Command)
		if r.Steps.Each != nil {
			one.Streams = r.Steps.Each(i)
		}
		done, err := s.Exec(ctx, idOrName, one, cb)
		if missing := notStarted(err); missing != nil {
			done, err = &RunResult{Result: missing}, nil
		}
		if err != nil || done == nil {
			return all, err
		}
		done.Step, done.Failed = i, done.ExitCode != 0 && !step.AllowFailure
		all = append(all, done)
		if r.Steps.Done != nil {
			r.Steps.Done(done)
		}
		if done.Failed && !r.Steps.GoOn {
			break
		}
	}
	return all, nil
}

// Joined returns the results of a list of commands as one: the first failure's, or else the last command's. A
// failure that the list allows is not a failure of the whole.
func Joined(all []*RunResult) *RunResult {
	shown := slices.IndexFunc(all, func(d *RunResult) bool { return d.Failed })
	if shown < 0 {
		shown = len(all) - 1
	}
	whole := *all[shown]
	if whole.Steps = all; !whole.Failed && whole.ExitCode != 0 {
		result := *whole.Result
		result.ExitCode, result.Reason, result.Signal, result.Detail = 0, runner.Exited, 0, ""
		whole.Result = &result
	}
	if whole.OutputDir == "" {
		whole.OutputDir = all[0].OutputDir
	}
	return &whole
}

// notStarted returns the result of a command that the sandbox does not have or cannot execute, or nil for another error.
func notStarted(err error) *runner.Result {
	var e *ipc.Error
	if !errors.As(err, &e) {
		return nil
	}
	r := &runner.Result{Reason: runner.Exited, Detail: e.Error()}
	switch e.Code {
	case ipc.CodeCommandNotFound:
		r.ExitCode = 127
	case ipc.CodeNotExecutable:
		r.ExitCode = 126
	default:
		return nil
	}
	return r
}
