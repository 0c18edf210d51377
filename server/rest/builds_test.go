package rest

import (
	"errors"
	"strings"
	"testing"

	"demesne/client"
)

// TestBuild checks a build's stream, who may build, and requests that are refused.
func TestBuild(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	r := newRig(t)
	c, err := client.New(client.Options{URL: r.http.URL, Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var lines []string
	built, err := c.Images().Build(t.Context(), client.BuildRequest{Tag: "local/app", Target: "last", Args: []string{"A=1", "B=2,3"}}, strings.NewReader("FROM x"), func(l string) { lines = append(lines, l) })
	if err != nil || *built != (client.Built{Tag: "local/app", Digest: "sha256:0"}) || strings.Join(lines, "|") != "last [A=1 B=2,3]|FROM x|half" {
		t.Errorf("%+v %v %q", built, err, lines)
	}
	if _, err := c.Images().Build(t.Context(), client.BuildRequest{Tag: "no"}, nil, nil); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a failed build: %v", err)
	}
	for path, want := range map[string]int{"/v1/builds": 422, "/v1/builds?tag=a&colour=red": 422, "/v1/builds?tag=": 422} {
		if status, text := r.send("POST", path, ""); status != want {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if status, text := r.send("POST", "/v1/builds?tag=a", "FROM x", "Caller: alice", "Content-Type: application/x-tar"); status != 403 || !strings.Contains(text, "Template.build") {
		t.Errorf("a namespace: %d %s", status, text)
	}
	if n := r.api.building.Load(); n != 0 {
		t.Errorf("%d builds still count", n)
	}
}
