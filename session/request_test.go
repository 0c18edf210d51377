package session

import (
	"encoding/json"
	"strings"
	"testing"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/runner"
)

// TestRequest checks that a stored request is the one that was asked for, without the values of credentials.
func TestRequest(t *testing.T) {
	r := Request{Secrets: []string{"TOKEN"}}
	r.Create = CreateOptions{Spec: runner.Spec{Key: "k"}, Image: imageref.Ref{Kind: imageref.Registry, Given: "x", Full: "docker.io/library/x"}, Pull: images.PullNever}
	r.Create.Egress = Egress{Mode: runner.NoEgress, Secrets: []runner.Secret{{Value: "value-1"}}, Routes: []runner.Route{{Token: "value-2"}}}
	r.Run = RunOptions{Command: runner.Command{Argv: Shell("echo $HOME"), Timeout: 3}, Stdin: "in", Stdout: &strings.Builder{}, Manifest: true}
	r.Run.Steps.List = []runner.Step{{Argv: []string{"a b"}}}
	text, err := json.Marshal(r)
	if err != nil || strings.Contains(string(text), "value-") {
		t.Fatalf("%s %v", text, err)
	}
	var got Request
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(got)
	if err != nil || string(again) != string(text) || got.Text() != "echo $HOME" || got.Create.Image != r.Create.Image || got.Run.Command.Timeout != 3 {
		t.Errorf("%s\nwant %s\n%v", again, text, err)
	}
}

// TestText checks what a person reads of a command.
func TestText(t *testing.T) {
	for want, argv := range map[string][]string{"echo a": Shell("echo a"), "printf a": {"printf", "a"}, "/bin/sh -c": {"/bin/sh", "-c"}} {
		r := Request{Run: RunOptions{Command: runner.Command{Argv: argv}}}
		if got := r.Text(); got != want {
			t.Errorf("%q: %q", argv, got)
		}
	}
}

func TestLines(t *testing.T) {
	if Lines("python", nil) != nil {
		t.Error("an event arrived without a listener")
	}
	var said []string
	tell := Lines("python", func(s string) { said = append(said, s) })
	layer := func(d oci.Digest, s events.State, n, of int64) events.Event {
		return events.Event{Event: events.Layer, Digest: d, State: s, Bytes: n << 20, Total: of << 20}
	}
	for _, e := range []events.Event{
		layer("a", events.Waiting, 0, 10), layer("b", events.Waiting, 0, 20), layer("a", events.Pulling, 5, 10),
		layer("a", events.Pulled, 0, 0), {Event: events.Retry, In: 1e9, Why: "reset"}, {Event: events.Notice},
		{Event: events.Layer, DiffID: "c", State: events.Unpacking},
	} {
		tell(e)
	}
	want := "image python: 0 of 10 MiB fetched|image python: 0 of 30 MiB fetched|image python: 5 of 30 MiB fetched|" +
		"image python: 10 of 30 MiB fetched|image python: trying again in 1s: reset|image python: unpacking"
	if got := strings.Join(said, "|"); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
