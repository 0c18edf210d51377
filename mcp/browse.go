package mcp

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/mcp/browser"
)

// The tool set "browser" drives browsers in sandboxes: see package browser, which has its table. A session is a sandbox's key.

// browserImage is the recipe that has a browser.
const browserImage = "browser"

// browserTools returns the tools of the set.
func (s *Server) browserTools() (list []tool) {
	if s.opts.Browse == nil {
		return nil
	}
	sandbox := []property{
		s.opts.egressField("none").described("Network of a new browser's sandbox. Default none."),
		domainsField.plain(), askField.plain(),
	}
	for _, t := range browser.Tools() {
		var in []property
		for _, a := range t.Args {
			p := field(a.Name, a.Kind, a.About)
			if a.Kind == "array" {
				p = listOf(a.Name, a.About)
			}
			p.required = a.Required
			in = append(in, p)
		}
		in = append(in, field("session", "string", "Default "+browserImage+".").also("The key of the browser's sandbox: sandbox_create with this key and an image that has playwright-mcp, such as "+browserImage+", makes one with other settings first."))
		if t.Name == "browser_navigate" {
			in = append(in, sandbox...)
		}
		list = append(list, tool{
			name: t.Name, description: t.About, in: arguments(in...), hints: hints{openWorld: true},
			handle: func(c *call) (*sdk.CallToolResult, error) { return c.browse(t.Name) },
		})
	}
	return list
}

// browse calls a tool in the browser of the call's session.
func (c *call) browse(name string) (*sdk.CallToolResult, error) {
	given := c.args
	c.args = args{"key": cmp.Or(given.text("session"), browserImage), "image": browserImage}
	for _, p := range []string{"egress", domainsField.name, askField.name} {
		if name == "browser_navigate" && given[p] != nil {
			c.args[p] = given[p]
		}
	}
	r, err := c.sandboxRequest("none")
	c.args = given
	if err != nil {
		return nil, err
	}
	r.Create.Unasked = append(r.Create.Unasked, "image")
	watch, stop := c.watch()
	defer stop()
	b, err := c.opts.Browse(c.ctx, r, name, given, watch)
	if err != nil {
		return nil, err
	}
	text := cmp.Or(b.Text, "done")
	if b.Started {
		text = strings.TrimSpace(fmt.Sprintf("sandbox_id: %s\noutput_dir: %s\n---\n%s", b.Sandbox, b.Out, text))
	}
	content := []sdk.Content{&sdk.TextContent{Text: text}}
	for _, p := range b.Pictures {
		content = append(content, &sdk.ImageContent{Data: p.Data, MIMEType: p.MIME})
	}
	return &sdk.CallToolResult{Content: slices.Clip(content), IsError: b.Failed}, nil
}
