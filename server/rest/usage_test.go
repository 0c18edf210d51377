package rest

import (
	"strings"
	"testing"
	"time"

	"demesne/client"
)

// TestUsages checks that a caller sees the samples of its own sandboxes, and the newest alone if it names none.
func TestUsages(t *testing.T) {
	r := newRig(t)
	if _, text := r.send("GET", "/v1/usage", ""); !strings.Contains(text, `{"items":[]}`) { // a server without samples
		t.Errorf("%s", text)
	}
	r.api.opts.Samples = func(string) []client.UsageSample {
		return []client.UsageSample{{Time: time.Unix(1, 0).UTC(), Memory: 1}, {Time: time.Unix(5, 0).UTC(), Memory: 2, CPUs: 0.5}}
	}
	own := r.make("own").info.ID
	r.fake.all["theirs"] = &fakeSandbox{namespace: "alice"}
	r.fake.all["theirs"].info = r.fake.all[own].info
	r.fake.all["theirs"].info.ID, r.fake.all["theirs"].info.Name = "theirs", "theirs"
	for _, c := range []struct{ who, query, has, lacks string }{
		{"", "", `{"sandbox":"theirs","samples":[{"time":"1970-01-01T00:00:05Z","cpus":0.5,"memory_bytes":2,"processes":0}]}`, `:01Z`},
		{"", "?sandbox=own", `{"sandbox":"` + own + `","samples":[{"time":"1970-01-01T00:00:01Z"`, "theirs"},
		{"alice", "", `"theirs"`, own},
		{"alice", "?sandbox=own", "no such sandbox", "samples"},
		{"alice", "?sandbox=" + own, "no such sandbox", "samples"},
		{"bob", "", `{"items":[]}`, "sandbox"},
		{"bob", "?sandbox=theirs", "no such sandbox", "samples"},
		{"", "?sandbox=..%2f", "no such sandbox", "samples"},
		{"", "?all=1", "query.all", "samples"},
	} {
		var headers []string
		if c.who != "" {
			headers = []string{"Caller: " + c.who}
		}
		if _, text := r.send("GET", "/v1/usage"+c.query, "", headers...); !strings.Contains(text, c.has) || strings.Contains(text, c.lacks) {
			t.Errorf("%s %q: %s", c.who, c.query, text)
		}
	}
}
