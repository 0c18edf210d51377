package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"demesne/client"
	"demesne/runner"
)

// cutJobs has a job whose output cannot be read to its end.
type cutJobs struct{ Jobs }

func (cutJobs) Get(context.Context, string) (*client.Job, error) { return &client.Job{}, nil }

func (cutJobs) Log(_ context.Context, _, _ string, to func([]byte) error) error {
	return errors.Join(to([]byte("a part")), errors.New("read output: input/output error"))
}

// TestJobOutputCut checks that no client takes a part of a job's output for the whole.
func TestJobOutputCut(t *testing.T) {
	api := New(Options{Jobs: cutJobs{}, Questions: func(func(runner.Question) (allow, answered bool)) {}})
	s := httptest.NewServer(api)
	defer s.Close()
	a, err := http.Get(s.URL + "/v1/jobs/x/stdout")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if text, err := io.ReadAll(a.Body); err == nil || string(text) != "a part" {
		t.Errorf("%q, %v", text, err)
	}
}
