// Package worker is the part of session/ray that speaks the Jobs API of Ray's dashboard. The program of frontends runs it for one
// request, whose cluster is the dashboard's address. It sends Ray's token where this user has one, and follows no redirection.
package worker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"demesne/internal/text"
	"demesne/runner/jobs"
	"demesne/session/engines"
)

// Main serves one request.
func Main() { engines.Main(serve) }

const (
	maxRequest = 64 << 20
	maxAnswer  = 4 << 20 // bytes that are read of an answer
)

// dashboard is a client of the Jobs API that Ray's dashboard serves.
type dashboard struct {
	http    *http.Client
	address string
	token   string // may be empty
}

func serve(ctx context.Context, verb, address string, ids []string, in io.Reader, out io.Writer) error {
	d := &dashboard{address: address, token: token(os.Getenv)}
	d.http = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	switch {
	case verb == engines.Submit:
		body, err := io.ReadAll(io.LimitReader(in, maxRequest))
		if err != nil {
			return err
		}
		if err = d.ask(ctx, http.MethodPost, "/api/jobs/", body, new(struct{})); missing(err) {
			err = d.noRay()
		}
		return err
	case verb == engines.States:
		states, err := d.states(ctx, ids)
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(states)
	case verb == engines.Cancel && len(ids) == 1:
		return d.known(ctx, d.ask(ctx, http.MethodPost, "/api/jobs/"+url.PathEscape(ids[0])+"/stop", nil, new(struct{})))
	}
	return fmt.Errorf("unknown verb %q", verb)
}

// token returns the token that Ray's own client would send, or "".
func token(getenv func(string) string) string {
	if strings.EqualFold(getenv("RAY_AUTH_MODE"), "disabled") {
		return ""
	}
	if t := getenv("RAY_AUTH_TOKEN"); t != "" {
		return strings.TrimSpace(t)
	}
	b, _ := os.ReadFile(cmp.Or(getenv("RAY_AUTH_TOKEN_PATH"), filepath.Join(getenv("HOME"), ".ray", "auth_token")))
	return strings.TrimSpace(string(b))
}

// job is what the API says about a job.
type job struct {
	Status  string
	Message string
}

// states asks for jobs one by one: the API's list has all jobs that the cluster ever had.
func (d *dashboard) states(ctx context.Context, ids []string) (map[string]jobs.State, error) {
	states := map[string]jobs.State{}
	for _, id := range ids {
		var j job
		err := d.ask(ctx, http.MethodGet, "/api/jobs/"+url.PathEscape(id), nil, &j)
		if err == nil {
			states[id] = j.state()
		} else if err = d.known(ctx, err); err != nil {
			return nil, err
		}
	}
	return states, nil
}

// state maps a status of Ray. The job's process records its machine itself.
func (j *job) state() (s jobs.State) {
	switch j.Status {
	case "PENDING":
		s.Status, s.Reason = jobs.Queued, words(j.Message)
	case "RUNNING":
		s.Status = jobs.Running
	case "STOPPED":
		s.Status, s.Reason = jobs.Cancelled, j.Status
	default: // FAILED, and SUCCEEDED without a result
		s.Status, s.Reason = jobs.Failed, cmp.Or(words(j.Message), j.Status)
	}
	return s
}

// words returns the first and the last line of a message: Ray names the kind of an error first, and its cause last. Ray's log of a job
// begins with the entrypoint, which says nothing; see package ray for its end.
func words(message string) string {
	first, rest, _ := strings.Cut(strings.TrimSpace(message), "\n")
	first, _, _ = strings.Cut(strings.TrimSpace(first), ", last available logs")
	last := strings.TrimSpace(rest[strings.LastIndexByte(rest, '\n')+1:])
	if last == "" || strings.HasSuffix(last, " 2>&1") {
		return first
	}
	return strings.TrimRight(first, ":") + ": " + last
}

// statusError is an answer that is not a success.
type statusError struct {
	code    int
	message string
}

func (e *statusError) Error() string { return e.message }

func missing(err error) bool {
	var e *statusError
	return errors.As(err, &e) && e.code == http.StatusNotFound
}

// known returns nil for the error about a job that Ray does not know. Another server may answer with the same status.
func (d *dashboard) known(ctx context.Context, err error) error {
	if !missing(err) {
		return err
	}
	var version struct {
		Ray string `json:"ray_version"`
	}
	if err := d.ask(ctx, http.MethodGet, "/api/version", nil, &version); err != nil && !missing(err) {
		return err
	}
	if version.Ray == "" {
		return d.noRay()
	}
	return nil
}

const hint = "--on ray:http://HOST:8265 or RAY_API_SERVER_ADDRESS names a dashboard, which is part of ray[default]"

func (d *dashboard) noRay() error {
	return text.Hinted(fmt.Errorf("%s is not a dashboard of Ray", d.address), hint)
}

// ask makes a request, and reads the answer.
func (d *dashboard) ask(ctx context.Context, method, path string, body []byte, answer any) error {
	r, err := http.NewRequestWithContext(ctx, method, d.address+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", "demesne")
	r.Header.Set("Content-Type", "application/json")
	if d.token != "" {
		r.Header.Set("Authorization", "Bearer "+d.token)
	}
	a, err := d.http.Do(r)
	var lost *url.Error
	if errors.As(err, &lost) {
		return text.Hinted(fmt.Errorf("no answer from Ray's dashboard %s: %w", d.address, lost.Err), hint)
	}
	if err != nil {
		return err
	}
	defer a.Body.Close()
	said, err := io.ReadAll(io.LimitReader(a.Body, maxAnswer))
	switch {
	case err != nil:
		return fmt.Errorf("read answer of Ray's dashboard %s: %w", d.address, err)
	case a.StatusCode == http.StatusUnauthorized || a.StatusCode == http.StatusForbidden:
		return text.Hinted(fmt.Errorf("the dashboard %s of Ray does not accept this user's token", d.address), "RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH has the cluster's token")
	case a.StatusCode == http.StatusOK && json.Unmarshal(said, answer) == nil:
		return nil
	case a.StatusCode < 400:
		return d.noRay()
	}
	return &statusError{a.StatusCode, fmt.Sprintf("the dashboard %s of Ray answered %s: %s", d.address, a.Status, words(string(said)))}
}
