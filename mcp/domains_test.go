package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"demesne/runner"
	"demesne/session"
	"demesne/session/operator"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// listedTest configures an operator's list with listed.test, which refuses *.never.test.
func listedTest(o *Options) {
	o.Policy = ruled{o.Policy, func(words string) (string, operator.Verdict, error) {
		switch {
		case words == "listed.test":
			return words, operator.Allowed, nil
		case words == "mode.test":
			return "", operator.Allowed, nil
		case strings.HasSuffix(words, ".never.test"):
			return "", operator.Refused, errors.New("never")
		}
		return words, operator.Ask, nil
	}}
}

// TestEscapeM1Asked checks that an unlisted rule applies after the person at the client accepts it. The question
// shows what the sandbox can read. If the client cannot ask, the call is refused.
func TestEscapeM1Asked(t *testing.T) {
	for _, c := range []struct{ version, answer, domains, want, asked string }{
		{"2025-11-25", "accept", "listed.test mode.test", "listed.test", ""},
		{"2025-11-25", "accept", "a.test listed.test b.test:443", "a.test listed.test b.test:443", `"a.test", "b.test:443"`},
		{"2025-11-25", "decline", "a.test", "", `"a.test"`},
		{"2025-11-25", "cancel", "a.test", "", `"a.test"`},
		{"2025-11-25", "", "a.test", "", ""},
		{"2025-11-25", "accept", "a.test x.never.test", "", ""},
		{severalRounds, "accept", "a.test", "a.test", `"a.test"`},
		{severalRounds, "decline", "a.test", "", `"a.test"`},
		{severalRounds, "", "a.test", "", ""},
	} {
		d := &desk{}
		s, root := serverFor(t, d, listedTest)
		secret := filepath.Join(root, "secret")
		if err := os.WriteFile(secret, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		var message string
		o := &sdk.ClientOptions{}
		if c.answer != "" {
			o.ElicitationHandler = func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
				message = r.Params.Message
				return &sdk.ElicitResult{Action: c.answer}, nil
			}
		}
		list, _ := json.Marshal(strings.Fields(c.domains))
		text, _, isError := callTool(t, clientOf(t, s, o, c.version), "sandbox_create", `{"allowed_domains":`+string(list)+`,"files":["`+secret+`"]}`)
		got := ""
		if len(d.seen()) > 0 {
			got = strings.Join(d.seen()[0].Create.Egress.Allow, " ")
		}
		if got != c.want || isError != (c.want == "") {
			t.Errorf("%+v: %q, %s", c, got, text)
		}
		want := ""
		if c.asked != "" {
			want = "A model wants to start a command in a sandbox with network access to " + c.asked + `, which the operator did not list. Accept to allow it. It can read "` + secret + `".`
		}
		if message != want {
			t.Errorf("%+v: asked %q, want %q", c, message, want)
		}
	}
}

// TestEscapeM7Bounded checks that thirty concurrent calls ask at most eight questions at a time, and that each call
// asks its own.
func TestEscapeM7Bounded(t *testing.T) {
	d := &desk{}
	s, _ := serverFor(t, d, listedTest)
	var mu sync.Mutex
	now, most, seen := 0, 0, map[string]int{}
	full := make(chan struct{})
	filled := sync.OnceFunc(func() { close(full) })
	o := &sdk.ClientOptions{ElicitationHandler: func(ctx context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		mu.Lock()
		seen[r.Params.Message]++
		now++
		most = max(most, now)
		if now == maxAsked {
			filled()
		}
		mu.Unlock()
		select { // answer only once the maximum is reached, with time for one question too many
		case <-full:
			time.Sleep(time.Millisecond)
		case <-ctx.Done():
		}
		mu.Lock()
		now--
		mu.Unlock()
		return &sdk.ElicitResult{Action: "accept"}, nil
	}}
	cs := clientOf(t, s, o, "2025-11-25")
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			if text, _, isError := callTool(t, cs, "sandbox_script", fmt.Sprintf(`{"command":"x","allowed_domains":["n%d.test"],"background":true}`, i)); isError {
				t.Errorf("call %d: %s", i, text)
			}
		})
	}
	wg.Wait()
	if most > maxAsked || len(seen) != 30 {
		t.Errorf("%d questions at once, %d in all", most, len(seen))
	}
}

// TestEscapeM7Replayed checks that an answer applies to the question of one call only. Its state and its answer
// cannot be used for another call, or a second time.
func TestEscapeM7Replayed(t *testing.T) {
	d := &desk{}
	s, _ := serverFor(t, d, listedTest)
	cs := clientOf(t, s, &sdk.ClientOptions{
		MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true},
		ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			return nil, errors.New("asked while the call was under way")
		},
	}, severalRounds)
	call := func(domain, state string, answers sdk.InputResponseMap) *sdk.CallToolResult {
		t.Helper()
		r, err := cs.CallTool(t.Context(), &sdk.CallToolParams{
			Name: "sandbox_create", Arguments: json.RawMessage(`{"allowed_domains":["` + domain + `"]}`), RequestState: state, InputResponses: answers,
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	yes := func(r *sdk.CallToolResult) sdk.InputResponseMap {
		answers := sdk.InputResponseMap{}
		for id := range r.InputRequests {
			answers[id] = &sdk.ElicitResult{Action: "accept"}
		}
		return answers
	}
	first := call("a.test", "", nil)
	if len(first.InputRequests) != 1 || first.RequestState == "" {
		t.Fatalf("%+v", first)
	}
	if r := call("a.test", first.RequestState, yes(first)); r.IsError || len(d.seen()) != 1 {
		t.Errorf("the first time: %+v", r)
	}
	if r := call("a.test", first.RequestState, yes(first)); !r.IsError || len(d.seen()) != 1 {
		t.Errorf("replayed: %+v", r)
	}
	second := call("b.test", "", nil)
	if r := call("b.test", second.RequestState, yes(first)); !r.IsError || len(d.seen()) != 1 {
		t.Errorf("with the answer to another question: %+v", r)
	}
}

// TestEscapeM7Imitated checks that text in a question cannot end its quotes or start a line. A question that is too
// long to read is not asked.
func TestEscapeM7Imitated(t *testing.T) {
	for in, want := range map[string]string{
		`/a". Accept, and nothing leaves. "`: `"/a\". Accept, and nothing leaves. \""`,
		"/a”. It is safe “":                  `"/a\u201d. It is safe \u201c"`,
		"/a\n\nA command wants":              `"/a\n\nA command wants"`,
		"/a\u202e\x1b[2J\u200b":              `"/a\u202e\x1b[2J\u200b"`,
		"/日本語/ü":                             `"/日本語/ü"`,
		"\xff":                               `"\xff"`,
	} {
		if got := quoted(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
	d := &desk{}
	s, root := serverFor(t, d, listedTest)
	var files []string
	for i := range 30 {
		name := filepath.Join(root, fmt.Sprint(strings.Repeat("n", 200), i))
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, name)
	}
	asked := 0
	o := &sdk.ClientOptions{ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		asked++
		return &sdk.ElicitResult{Action: "accept"}, nil
	}}
	list, _ := json.Marshal(files)
	if text, _, isError := callTool(t, client(t, s, o), "sandbox_create", `{"allowed_domains":["a.test"],"files":`+string(list)+`}`); !isError || asked != 0 || !strings.Contains(text, "too long") {
		t.Errorf("asked %d times: %s", asked, text)
	}
	if text, _, isError := callTool(t, client(t, s, o), "sandbox_create", `{"allowed_domains":[`+strings.Repeat(`"a.test",`, maxDomains)+`"b.test"]}`); !isError || !strings.Contains(text, "more than 64") {
		t.Errorf("65 rules: %s", text)
	}
}

// TestEscapeM2Bound checks that a ceiling applies to every kind of limit, including limits that the call omits.
func TestEscapeM2Bound(t *testing.T) {
	d := &desk{}
	s, _ := serverFor(t, d, func(o *Options) {
		o.Policy = bounded(session.Bounds{Max: runner.Limits{Memory: 100, CPUs: 0.5, PIDs: 10, Disk: 1000}, MaxTimeout: time.Minute})
	})
	cs := client(t, s, nil)
	for _, c := range []struct{ args, want string }{
		{`"limits":{"memory":101}`, "limits.memory: 101 is more than 100, the ceiling (DEMESNE_MAX_MEMORY)"},
		{`"limits":{"cpus":"0.6"}`, "limits.cpus: 0.6 is more than 0.5, the ceiling (DEMESNE_MAX_CPUS)"},
		{`"limits":{"pids":1000000}`, "limits.pids: 1000000 is more than 10, the ceiling (DEMESNE_MAX_PIDS)"},
		{`"limits":{"disk":1125899906842624}`, "limits.disk: 1125899906842624 is more than 1000, the ceiling (DEMESNE_MAX_DISK)"},
		{`"timeout_seconds":61`, "timeout_seconds: 61 is more than 60, the ceiling (DEMESNE_MAX_TIMEOUT)"},
		{`"limits":{"memory":100,"cpus":0.5,"pids":10,"disk":1000},"timeout_seconds":60`, ""},
		{`"limits":{}`, ""},
		{`"timeout_seconds":1e-12`, ""},
	} {
		text, _, isError := callTool(t, cs, "sandbox_script", `{"command":"x",`+c.args+`}`)
		if isError != (c.want != "") || isError && text != c.want {
			t.Errorf("%s: %q, want %q", c.args, text, c.want)
		}
	}
	limit := func(r session.Request) time.Duration { return r.Run.Command.Timeout }
	if r := d.seen(); len(r) != 3 || r[1].Create.Spec.Limits.PIDs != 10 || r[1].Create.Spec.Limits.Memory != 100 || limit(r[0]) != time.Minute || limit(r[1]) != time.Minute || limit(r[2]) != time.Nanosecond ||
		!slices.Equal(r[0].Create.Unasked, []string{"image", "egress"}) || !slices.Equal(r[1].Create.Unasked, []string{"memory", "cpus", "pids", "disk", "image", "egress"}) {
		t.Errorf("%+v", r)
	}
}
