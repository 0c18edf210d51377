package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"demesne/images/events"
	"demesne/images/oci"
	"demesne/runner/ipc"
)

func TestExplained(t *testing.T) {
	for _, c := range []struct {
		err  error
		hint string
	}{
		{nil, ""},
		{errors.New("plain"), ""},
		{fmt.Errorf("create: %w", &ipc.Error{Text: "no", Hint: "do this"}), "do this"},
		{&ipc.Error{Text: "no"}, ""},
		{fmt.Errorf("image: %w", &events.Failure{Text: "no", Hint: "log in"}), "log in"},
	} {
		err := explained(c.err)
		var h interface{ Hint() string }
		got := ""
		if errors.As(err, &h) {
			got = h.Hint()
		}
		if got != c.hint || !errors.Is(err, c.err) {
			t.Errorf("%v: hint %q, want %q", c.err, got, c.hint)
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
