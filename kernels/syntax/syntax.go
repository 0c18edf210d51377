// Package syntax checks code by the parser of its language, in a sandbox. It does not execute the code.
package syntax

import (
	"context"
	"fmt"
	"strings"
	"time"

	"demesne/kernels/languages"
	"demesne/runner"
	"demesne/session"
)

// checkTime bounds a check of syntax.
const checkTime = time.Minute

// Check checks the syntax of code in a new sandbox on the root of c. The code arrives on the parser's stdin: see
// [languages.Language.Check]. The sandbox has no network, no inputs and no workspace, whatever c says. Check returns no
// problem for correct code. An error means that the code was not checked.
func Check(ctx context.Context, s *session.Service, c session.CreateOptions, l languages.Language, code string, cb session.Callbacks) ([]languages.Problem, error) {
	if l.Check == nil && l.Unchecked != "" {
		return nil, fmt.Errorf("%s cannot be checked without executing it: %s", l.Name, l.Unchecked)
	}
	if l.Check == nil {
		return nil, fmt.Errorf("demesne cannot check the syntax of %s", l.Name)
	}
	c.Spec = runner.Spec{Limits: c.Spec.Limits, User: c.Spec.User, Require: c.Spec.Require}
	c.Egress, c.Out = session.Egress{}, ""
	done, err := s.Run(ctx, c, session.RunOptions{
		Command: runner.Command{Argv: l.Check, Timeout: checkTime},
		Stdin:   code,
	}, cb)
	if err != nil {
		return nil, err
	}
	if done.ExitCode == 0 {
		return nil, nil
	}
	output := done.Stderr.Text + "\n" + done.Stdout.Text
	if all := l.Problems(output); len(all) > 0 && done.Reason == runner.Exited {
		return all, nil
	}
	return nil, fmt.Errorf("%s could not check the code: %s", l.Check[0], said(done, output))
}

// said explains a parser that failed.
func said(done *session.RunResult, output string) string {
	if done.Reason != runner.Exited {
		return strings.TrimSpace(string(done.Reason) + " " + done.Detail)
	}
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		return last
	}
	return fmt.Sprintf("exit code %d", done.ExitCode)
}
