package backend

import (
	"slices"
	"strings"
	"testing"
	"time"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/oci"
	"demesne/runner"
)

// TestTimeout checks that a command without a timeout gets 48 hours, and any other its own timeout.
func TestTimeout(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{0: 48 * time.Hour, time.Second: time.Second, 72 * time.Hour: 72 * time.Hour} {
		if got := (Request{Command: "x", Timeout: asked}).Run().Command.Timeout; got != want {
			t.Errorf("%v: %v, want %v", asked, got, want)
		}
	}
}

// TestUnasked checks that arguments that a model left out are defaults of a keyed sandbox.
func TestUnasked(t *testing.T) {
	r := Request{Image: "host", OwnEgress: true, UnaskedLimits: []string{"cpus"}, Spec: runner.Spec{Key: "k"}}
	c, err := r.Create()
	if err != nil || !slices.Equal(c.Unasked, []string{"cpus", "image"}) {
		t.Errorf("%q, %v", c.Unasked, err)
	}
}

// TestStored checks that no registry is asked for an image that must be in the store.
func TestStored(t *testing.T) {
	for stored, want := range map[bool]images.PullPolicy{false: "", true: images.PullNever} {
		if c, err := (Request{Image: "local/x", Stored: stored}).Create(); err != nil || c.Pull != want {
			t.Errorf("%v: %q %v", stored, c.Pull, err)
		}
	}
}

func TestFetching(t *testing.T) {
	if fetching("python", nil) != nil {
		t.Error("an event arrived without a listener")
	}
	var said []string
	tell := fetching("python", func(s string) { said = append(said, s) })
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
