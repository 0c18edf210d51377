package mcp

import (
	"context"
	"fmt"
	"slices"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/mcp/browser"
	"demesne/session"
)

// browses is a [Options].Browse that says what it was asked.
func browses(_ context.Context, r session.Request, tool string, args map[string]any, _ session.Callbacks) (*browser.Result, error) {
	c := r.Create
	text := fmt.Sprintf("%s %s %s %s %t %v", tool, c.Spec.Key, c.Image, c.Egress.Mode, slices.Contains(c.Unasked, "image"), args["url"])
	return &browser.Result{Text: text, Started: tool == "browser_navigate", Sandbox: "b1", Out: "/o", Pictures: []browser.Picture{{Data: []byte("a"), MIME: "image/png"}}}, nil
}

// TestBrowse checks which sandbox a browser's tool asks for, and that pictures are content.
func TestBrowse(t *testing.T) {
	s, _ := serverFor(t, &desk{}, func(o *Options) {
		o.Sets, o.Browse = []string{"browser"}, browses
	})
	c := client(t, s, nil)
	for _, one := range []struct {
		tool string
		args map[string]any
		want string
	}{
		{"browser_navigate", map[string]any{"url": "u", "session": "s", "egress": "package-managers"}, "sandbox_id: b1\noutput_dir: /o\n---\nbrowser_navigate s browser package-managers true u"},
		{"browser_back", map[string]any{"egress": "package-managers"}, "browser_back browser browser none true <nil>"},
	} {
		r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: one.tool, Arguments: one.args})
		if err != nil || len(r.Content) < 2 {
			t.Fatalf("%s: %+v, %v", one.tool, r, err)
		}
		text, _ := r.Content[0].(*sdk.TextContent)
		picture, _ := r.Content[1].(*sdk.ImageContent)
		if text == nil || text.Text != one.want || picture == nil || string(picture.Data) != "a" {
			t.Errorf("%s: %+v", one.tool, r.Content)
		}
	}
}
