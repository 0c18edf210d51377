package images

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"demesne/images/events"
	"demesne/images/oci"
)

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"a b": "a b", "a\x1b[2Jb\n\tc": "a [2Jb  c", "\u202eevil": " evil", "\xff": "?", "é": "é", "": "",
		strings.Repeat("é", 2000): strings.Repeat("é", 1024) + "...",
	} {
		if got := plain(in); got != want {
			t.Errorf("plain(%.20q) = %.40q", in, got)
		}
	}
}

func TestVerdict(t *testing.T) {
	broken, cause := errors.New("broken"), errors.New("the cause")
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	failed := events.Event{Event: events.Error, Text: "denied", Code: events.CodeDenied}
	for _, c := range []struct {
		name string
		ctx  context.Context
		last events.Event
		read error
		wait error
		want string
	}{
		{"well", t.Context(), events.Event{Event: events.Result}, nil, nil, ""},
		{"no result", t.Context(), events.Event{}, nil, nil, ""},
		{"told", t.Context(), failed, nil, broken, "denied"},
		{"told, and exits well", t.Context(), failed, nil, nil, "denied"},
		{"nonsense", t.Context(), events.Event{}, io.ErrNoProgress, broken, io.ErrNoProgress.Error()},
		{"died", t.Context(), events.Event{}, nil, broken, "ended without a message: broken: tail"},
		{"stopped", gone, events.Event{}, nil, broken, "the cause"},
		{"stopped, and told", gone, failed, nil, nil, "the cause"},
		{"stopped too late", gone, events.Event{Event: events.Result}, nil, nil, ""},
	} {
		got := ""
		if err := verdict(c.ctx, c.last, c.read, c.wait, "tail"); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// FuzzEvents checks that reading events always ends and returns no character that a terminal
// interprets.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"event":"layer","diffid":"sha256:` + someHex + `","state":"done"}` + "\n" + `{"event":"error","text":"\u001b[2J"}`))
	f.Add([]byte("{}\n\n{"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var all []events.Event
		last, _ := readEvents(bytes.NewReader(b), func(e events.Event) { all = append(all, e) })
		for _, e := range append(all, last) {
			if strings.ContainsFunc(e.Text+e.Hint+e.Why, unicode.IsControl) {
				t.Errorf("%q, %q, %q", e.Text, e.Hint, e.Why)
			}
			for _, d := range []oci.Digest{e.Digest, e.DiffID} {
				if _, err := oci.ParseDigest(string(d)); d != "" && err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// FuzzEntry checks that an entry of index.json is written back unchanged.
func FuzzEntry(f *testing.F) {
	f.Add(someHex, "docker.io/a/b:1", `["x","y"]`, "sha256:"+someHex, "2026-01-02T03:04:05Z", int64(7))
	f.Add(someHex, "", `null`, "", "", int64(1))
	f.Fuzz(func(t *testing.T, hex, name, names, index, pulled string, size int64) {
		raw, _ := json.Marshal(map[string]any{
			"digest": "sha256:" + hex, "size": size,
			"annotations": map[string]string{annoName: name, annoNames: names, annoIndex: index, annoPulled: pulled, "other": "x"},
		})
		var d oci.Descriptor
		if json.Unmarshal(raw, &d) != nil {
			return
		}
		e, err := parseEntry(d)
		if err != nil {
			return
		}
		written, err := e.descriptor()
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseEntry(written)
		if err != nil || !slices.Equal(again.names, e.names) || again.index != e.index ||
			!again.pulled.Equal(e.pulled.Truncate(time.Second)) || again.Annotations["other"] != "x" {
			t.Errorf("%+v is read again as %+v, %v", e, again, err)
		}
	})
}
