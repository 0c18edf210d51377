package mcp

import (
	"fmt"
	"slices"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const nestedInstructions = "Starts helpers of this agent, each in a sandbox of its own. " +
	"A helper sees this agent's /in and shares its /workspace. What it writes to its /out appears at /out/child/NAME here, " +
	"and for later helpers at /in/previous-jobs/NAME. Give each helper another name. Copy what is to remain into your own /out."

// hostArguments name files or sandboxes of the host, or ask a person there. The nested server has none of them.
var hostArguments = []string{"files", "directories", "key", "replace", "ask", "allowed_domains"}

var childField = field("name", "string", "Name of the helper: lower-case letters, digits and interior hyphens, at most 40, not used before.").must()

// nestedTools returns the tools of the nested server. They are the host's, with fewer arguments and without structured
// results.
func (s *Server) nestedTools() (list []tool) {
	spawners := []tool{s.script(), s.agent(), s.create()}
	if s.opts.Research != ResearchOff {
		spawners = append(spawners, s.research())
	}
	for _, t := range spawners {
		list = append(list, t.spawner().nested())
	}
	for _, t := range []tool{s.exec(), s.destroy(), s.status(), s.wait(), cancelTool()} {
		list = append(list, t.nested())
	}
	return list
}

// spawner returns t, whose callers must name what they start.
func (t tool) spawner() tool {
	fields := slices.DeleteFunc(slices.Clone(fieldsOf(t.in)), func(p property) bool {
		return p.name == childField.name || slices.Contains(hostArguments, p.name)
	})
	t.in = arguments(append(fields, childField)...)
	handle := t.handle
	t.handle = func(c *call) (*sdk.CallToolResult, error) {
		name := c.args.text("name")
		if name == "" {
			return nil, fmt.Errorf("name is required")
		}
		for _, host := range hostArguments {
			delete(c.args, host)
		}
		r, err := handle(c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return withName(r, name), nil
	}
	return t
}

// nested returns t with results only in text: the clients inside show only that to a model.
func (t tool) nested() tool {
	handle := t.handle
	t.out, t.handle = nil, func(c *call) (*sdk.CallToolResult, error) {
		r, err := handle(c)
		if err != nil {
			return nil, err
		}
		return &sdk.CallToolResult{Content: r.Content[:1]}, nil
	}
	return t
}

// withName puts the child's name before the text of a result.
func withName(r *sdk.CallToolResult, name string) *sdk.CallToolResult {
	text := r.Content[0].(*sdk.TextContent)
	r.Content[0] = &sdk.TextContent{Text: "name: " + name + "\n" + text.Text}
	return r
}
