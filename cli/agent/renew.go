package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"demesne/cli/launch"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/session"
)

// post sends a JSON body to a URL. It is agents.Options.Post. The frontend of agents sends it, because net/http would slow
// down the start of this program.
func post(ctx context.Context, url string, body []byte) (status int, response []byte, err error) {
	argv, err := client.FindFrontend(frontend)
	if err != nil {
		return 0, nil, err
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1], "post", url)
	cmd.Stdin = bytes.NewReader(body)
	out, err := cmd.Output()
	if err != nil {
		return 0, nil, fmt.Errorf("run %s: %w", argv[0], err)
	}
	line, response, found := bytes.Cut(out, []byte("\n"))
	if _, err := fmt.Sscan(string(line), &status); err != nil || !found {
		return 0, nil, fmt.Errorf("run %s: it printed no status", argv[0])
	}
	return status, response, nil
}

// Bounds of how often a session looks for a rejected credential, and renews it.
const (
	lookEvery  = time.Second
	renewAgain = time.Minute
)

// renew renews the credential of the routes until the command has ended: when it is due, and when the server has
// rejected it. A sandbox may cause rejections, so they renew it once a minute at most.
func (t *agentTerminal) renew(j *launch.Execution, s *session.Service, sandbox string, next time.Time) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	rejected, refused, earliest := false, rejections{path: t.record}, time.Time{}
	for {
		select {
		case <-j.Over:
			return
		case now := <-look.C:
			rejected = refused.more() || rejected
			if due := !next.IsZero() && now.After(next); !due && (!rejected || now.Before(earliest)) {
				continue
			}
		}
		at, err := t.push(s, sandbox, rejected)
		if next, rejected, earliest = at, false, time.Now().Add(renewAgain); err != nil {
			next = earliest
		}
	}
}

// push gives the routes the credential as it is now. rejected means that the server refused the last one.
func (t *agentTerminal) push(s *session.Service, sandbox string, rejected bool) (next time.Time, err error) {
	if rejected {
		t.agent.Rejected()
	}
	headers, next, err := t.agent.Renew(context.Background())
	if err != nil {
		return next, err
	}
	return next, s.With(context.Background(), func(e session.Engine) error {
		return e.ChangeEgress(context.Background(), runner.EgressChange{Sandbox: sandbox, Headers: headers})
	})
}

// rejections finds requests in the record of a session that the server did not authenticate.
type rejections struct {
	path string
	read int64 // bytes
}

// more reports whether there are further ones since the last call.
func (r *rejections) more() (found bool) {
	f, err := os.Open(r.path)
	if err != nil {
		return false // there was no request
	}
	defer f.Close()
	if _, err := f.Seek(r.read, io.SeekStart); err != nil {
		return false
	}
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil { // a line that is not complete is read next time
			return found
		}
		r.read += int64(len(line))
		var u runner.UsageRecord
		found = json.Unmarshal(line, &u) == nil && u.Status == 401 || found
	}
}
