package ray

import (
	"strings"
	"testing"

	"demesne/internal/text"
	"demesne/runner/jobs"
)

// TestAddress checks which dashboards the words after "ray:" and the environment name.
func TestAddress(t *testing.T) {
	for _, c := range []struct{ address, server, ray, want string }{
		{"", "", "", "http://127.0.0.1:8265"},
		{"head:8265", "http://other:1", "", "http://head:8265"},
		{"https://rays.example/a/", "", "", "https://rays.example/a"},
		{"", "http://other:1", "auto", "http://other:1"},
		{"", "", "http://[::1]:8265", "http://[::1]:8265"},
		{"", "", "10.0.0.1:6379", ""}, // of Ray's control store
		{"", "", "auto", ""},
		{"ray://head:10001", "", "", ""},
		{"http://user:word@head:8265", "", "", ""}, // the job's record would have the password
		{"http://head:8265/?a=b", "", "", ""},
		{"http://", "", "", ""},
		{"a b", "", "", ""},
		{"\n", "", "", ""},
	} {
		env := map[string]string{"RAY_API_SERVER_ADDRESS": c.server, "RAY_ADDRESS": c.ray}
		got, err := New(c.address, func(name string) string { return env[name] })
		if c.want == "" {
			if err == nil || text.HintOf(err) == "" || strings.Contains(err.Error(), "word") {
				t.Errorf("%+v: %+v, %v", c, got, err)
			}
		} else if err != nil || got.On() != "ray:"+c.want {
			t.Errorf("%+v: %+v, %v", c, got, err)
		}
	}
}

// TestSubmission checks what Ray gets of a job: no text of its command, and each word as one word of a shell.
func TestSubmission(t *testing.T) {
	c, err := New("head:8265", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("WORD", "a'b")
	s, err := c.submission(jobs.Process{ID: "job-1", Argv: []string{"/a b/demesne", "attend-job", "$(id)"}, Log: "/it's/log", Env: []string{"WORD"},
		Request: []byte(`{"run":["--","rm"]}`), Needs: jobs.Needs{Memory: 1 << 30}})
	if want := `exec '/a b/demesne' 'attend-job' '$(id)' >>'/it'\''s/log' 2>&1`; err != nil || s.Entrypoint != want || s.ID != "job-1" {
		t.Errorf("%+v, %v", s, err)
	}
	if s.CPUs != 1 || s.Memory != 1<<30+jobs.Overhead || s.Env.Variables["WORD"] != "a'b" || s.Env.Variables["RAY_API_SERVER_ADDRESS"] != "http://head:8265" {
		t.Errorf("%+v", s)
	}
	s, err = c.submission(jobs.Process{ID: "job-1", Argv: []string{"d"}, Log: "/log", List: jobs.List{Items: []string{"it's"}}, Shared: []string{"PATH"}, Needs: jobs.Needs{CPUs: 2}})
	if err != nil || !strings.HasPrefix(s.Entrypoint, "exec 'python3' '-c' '") || !strings.Contains(s.Entrypoint, `"cpus":2`) || s.CPUs != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, set := s.Env.Variables["PATH"]; set || strings.Contains(s.Entrypoint, "it's") {
		t.Errorf("%+v", s)
	}
}
