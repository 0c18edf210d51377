package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"demesne/cmd/internal/session"
	"demesne/runner"
	"demesne/runner/client"
)

// agentProgram runs agents without a terminal, and sends the requests that renew a login: net/http would slow down the
// start of this program.
const agentProgram = "demesne-agent"

// post sends a JSON body to a URL. It is agents.Options.Post.
func post(ctx context.Context, url string, body []byte) (status int, response []byte, err error) {
	path, err := client.FindProgram(agentProgram)
	if err != nil {
		return 0, nil, err
	}
	cmd := exec.CommandContext(ctx, path, "post", url)
	cmd.Stdin = bytes.NewReader(body)
	out, err := cmd.Output()
	if err != nil {
		return 0, nil, fmt.Errorf("run %s: %w", agentProgram, err)
	}
	line, response, found := bytes.Cut(out, []byte("\n"))
	if _, err := fmt.Sscan(string(line), &status); err != nil || !found {
		return 0, nil, errors.New("run " + agentProgram + ": it printed no status")
	}
	return status, response, nil
}

// renew renews the credential of the routes when it is due, until the command has ended.
func (t *agentTerminal) renew(j *execution, s *session.Service, sandbox string, next time.Time) {
	for !next.IsZero() {
		select {
		case <-j.over:
			return
		case <-time.After(time.Until(next)):
		}
		headers, at, err := t.agent.Renew(context.Background())
		if err == nil {
			err = s.With(context.Background(), func(e session.Engine) error {
				return e.ChangeEgress(context.Background(), runner.EgressChange{Sandbox: sandbox, Headers: headers})
			})
		}
		if next = at; err != nil {
			next = time.Now().Add(time.Minute)
		}
	}
}
