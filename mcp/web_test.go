package mcp

import (
	"context"
	"fmt"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/mcp/webpage"
	"demesne/runner"
	"demesne/session"
)

// noWeb is a web with one page, whose requests it keeps.
type noWeb struct {
	asked  []session.Request
	page   webpage.Page
	denied []runner.Blocked
}

func (w *noWeb) Page(_ context.Context, _ webpage.Order, r session.Request, _ session.Callbacks) (*webpage.Page, []runner.Blocked, error) {
	w.asked = append(w.asked, r)
	return &w.page, w.denied, nil
}

func (*noWeb) Searches() bool { return true }

func (*noWeb) Search(context.Context, string, int) ([]webpage.Hit, error) {
	return []webpage.Hit{{Title: "T", URL: "https://a.example/", Content: "c"}}, nil
}

// TestWebResults checks the sandbox of a page, and that results have the shape of their schemas.
func TestWebResults(t *testing.T) {
	w := &noWeb{page: webpage.Page{URL: "https://a.example/", Status: 200, Markdown: strings.Repeat("é", 10)}}
	s, _ := serverFor(t, &desk{}, func(o *Options) {
		o.Sets, o.Web, o.Policy = []string{setWeb}, w, bounded(session.Bounds{AllowedDomains: []string{"a.example"}})
	})
	c := client(t, s, nil)
	text, out, wrong := callTool(t, c, "fetch_webpage", `{"url":"https://a.example/","max_output_bytes":5,"offset":"2"}`)
	if fits(t, s, "fetch_webpage", out); wrong || !strings.HasSuffix(text, "---\néé") || !strings.Contains(text, "next_offset: 6") {
		t.Errorf("%q %v", text, out)
	}
	r := w.asked[0].Create
	if r.Egress.Mode != "none" || strings.Join(r.Egress.Allow, " ") != "a.example" || r.Spec.Inputs != nil || r.Spec.Limits.Memory != 512<<20 || r.Image.String() != "host" {
		t.Errorf("the sandbox of a page: %+v", r)
	}
	w.page.Screenshot, w.denied = []byte("jpeg"), []runner.Blocked{{Host: "cdn.example", Port: 443, Reason: "no rule"}}
	got, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "browser_fetch", Arguments: map[string]any{"url": "https://a.example/", "image": "host", "wait_for": "p"}})
	if err != nil || len(got.Content) != 2 {
		t.Fatalf("%+v %v", got, err)
	}
	out, _ = got.StructuredContent.(map[string]any)
	shot, _ := got.Content[1].(*sdk.ImageContent)
	if fits(t, s, "browser_fetch", out); shot == nil || string(shot.Data) != "jpeg" || fmt.Sprint(out["denied"]) != "[cdn.example:443 (no rule)]" || w.asked[1].Create.Spec.Limits.PIDs != 512 {
		t.Errorf("a rendered page: %+v %v", shot, out)
	}
	text, out, _ = callTool(t, c, "web_search", `{"query":"x"}`)
	if fits(t, s, "web_search", out); text != "1. [T](https://a.example/)\n   c\n" {
		t.Errorf("%q", text)
	}
	if text, _, wrong := callTool(t, c, "fetch_webpage", `{"url":"https://b.example/"}`); !wrong || len(w.asked) != 2 {
		t.Errorf("a host that is not listed: %s", text)
	}
}

// TestWebAsked checks that the person at the client decides about the host of a page that is not listed.
func TestWebAsked(t *testing.T) {
	for action, want := range map[string]int{"accept": 1, "decline": 0} {
		w := &noWeb{}
		s, _ := serverFor(t, &desk{}, func(o *Options) { o.Sets, o.Web = []string{setWeb}, w })
		message := ""
		text, _, wrong := callTool(t, client(t, s, &sdk.ClientOptions{ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			message = r.Params.Message
			return &sdk.ElicitResult{Action: action}, nil
		}}), "fetch_webpage", `{"url":"https://b.example:8443/secret"}`)
		if len(w.asked) != want || wrong != (want == 0) || !strings.Contains(message, `network access to "b.example:8443"`) {
			t.Errorf("%s: %q, %s", action, message, text)
		}
	}
}
