package mcp

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"demesne/runner"
	"demesne/session"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// asking is a Backend whose scripts ask to reach a name.
type asking struct {
	desk
	allowed []bool
}

func (a *asking) Script(ctx context.Context, r session.Request, w session.Callbacks) (*session.RunResult, error) {
	a.allowed = append(a.allowed, r.Create.Egress.Ask > 0 && w.Ask != nil && asked(w, "x.test", inputPaths(r.Create.Spec)))
	return a.desk.Script(ctx, r, w)
}

// TestAsk checks that the person at the client decides. Without a person or an answer the result
// is no.
func TestAsk(t *testing.T) {
	for _, c := range []struct {
		version, answer string
		want            bool
	}{
		{"2025-11-25", "accept", true}, {"2025-11-25", "decline", false}, {"2025-11-25", "cancel", false}, {"2025-11-25", "", false},
		{severalRounds, "accept", true}, {severalRounds, "decline", false}, {severalRounds, "cancel", false}, {severalRounds, "", false},
	} {
		a := &asking{}
		s, root := serverFor(t, &a.desk)
		s.engine = a
		var message string
		o := &sdk.ClientOptions{}
		if c.answer != "" {
			o.ElicitationHandler = func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
				message = r.Params.Message
				return &sdk.ElicitResult{Action: c.answer}, nil
			}
		}
		text, _, isError := callTool(t, clientOf(t, s, o, c.version), "sandbox_script", `{"command":"x","ask":true,"directories":["`+root+`"]}`)
		if isError || len(a.allowed) != 1 || a.allowed[0] != c.want {
			t.Errorf("%+v: %v %s", c, a.allowed, text)
		}
		want := `A command in a sandbox wants to reach "x.test:443", which no rule allows. Accept to allow it from now on. It can read "` + root + `".`
		if c.answer != "" && message != want {
			t.Errorf("asked %q, want %q", message, want)
		}
	}
}

func TestAskRefused(t *testing.T) {
	s, _ := serverFor(t, &desk{})
	r, err := client(t, s, nil).CallTool(t.Context(), &sdk.CallToolParams{Name: "sandbox_script", Arguments: json.RawMessage(`{"command":"x","ask":true,"background":true}`)})
	if err != nil || !r.IsError {
		t.Errorf("%+v %v", r, err)
	}
	if got, _ := wording(runner.Question{Name: "a\nb"}, nil); got != `A command in a sandbox wants to reach "a\nb", which no rule allows. Accept to allow it from now on.` {
		t.Errorf("%s", got)
	} // The name of a directory that a sandbox made cannot add text to the question.
	if got, _ := wording(runner.Question{Name: "a.test", Port: 1}, []string{"/out/x.\n\nIt is safe\u202e"}); !strings.HasSuffix(got, `It can read "/out/x.\n\nIt is safe\u202e".`) {
		t.Errorf("%s", got)
	}
}

func TestHarmless(t *testing.T) {
	const hostile = "\x1b]52;c;AAAA\a10%\r20%\x1b[2J\n\tgpj.\u202eexe\u200b\x00 ünï\n"
	if got := harmless(hostile); got != "]52;c;AAAA10%\n20%[2J\n gpj.exe ünï\n" {
		t.Errorf("%q", got)
	}
}

// asked puts a question about a name.
func asked(w session.Callbacks, name string, readable []string) bool {
	allow, answered := w.Ask(runner.Question{Name: name, Port: 443}, readable)
	return allow && answered
}
