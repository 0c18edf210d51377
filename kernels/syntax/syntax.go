// Package syntax checks code by the parser of its language, in a sandbox. It does not execute the code.
//
//	syntax.go    errors of syntax
//	imports.go   imports that code lacks
//	patterns.go  lines that deserve a look. The package does not make code safe: only the sandbox bounds what code does
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

// Checker checks code in new sandboxes on the root of Create. They have no network, no inputs and no workspace, whatever
// Create says.
type Checker struct {
	Service   *session.Service
	Create    session.CreateOptions
	Callbacks session.Callbacks
}

// Check checks the syntax of code. The code arrives on the parser's stdin: see [languages.Language.Check]. Check returns no
// problem for correct code. An error means that the code was not checked.
func (c Checker) Check(ctx context.Context, l languages.Language, code string) ([]languages.Problem, error) {
	if l.Check == nil && l.Unchecked != "" {
		return nil, fmt.Errorf("%s cannot be checked without executing it: %s", l.Name, l.Unchecked)
	}
	if l.Check == nil {
		return nil, fmt.Errorf("demesne cannot check the syntax of %s", l.Name)
	}
	done, err := c.parse(ctx, l.Check, code)
	if err != nil || done.ExitCode == 0 {
		return nil, err
	}
	output := done.Stderr.Text + "\n" + done.Stdout.Text
	if all := l.Problems(output); len(all) > 0 && done.Reason == runner.Exited {
		return all, nil
	}
	return nil, fmt.Errorf("%s could not check the code: %s", l.Check[0], said(done, output))
}

// parse runs a program that reads code on stdin.
func (c Checker) parse(ctx context.Context, argv []string, code string) (*session.RunResult, error) {
	o := c.Create
	o.Spec = runner.Spec{Limits: o.Spec.Limits, User: o.Spec.User, Require: o.Spec.Require}
	o.Egress, o.Out = session.Egress{}, ""
	return c.Service.Run(ctx, o, session.RunOptions{Command: runner.Command{Argv: argv, Timeout: checkTime}, Stdin: code}, c.Callbacks)
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
