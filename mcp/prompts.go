package mcp

import (
	"context"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/mcp/backend"
)

// A prompt is a template for a message of the user, with arguments.
type prompt struct {
	name, description string
	args              []*sdk.PromptArgument
	text              func(s *Server, ctx context.Context, args map[string]string) (string, error)
}

// prompts lists all prompts.
var prompts = []prompt{
	{
		name: "run_in_sandbox", description: "Do a task in a sandbox, with files of this machine to read",
		args: []*sdk.PromptArgument{
			{Name: "task", Description: "what is to be done", Required: true},
			{Name: "paths", Description: "files or directories it needs, separated by commas"},
		},
		text: (*Server).runPrompt,
	},
	{
		name: "explain_job", description: "Find out why a background job ended as it did",
		args: []*sdk.PromptArgument{{Name: "job_id", Description: "what sandbox_script answered", Required: true}},
		text: (*Server).explainPrompt,
	},
}

func (s *Server) addPrompts() {
	for _, p := range prompts {
		s.sdk.AddPrompt(&sdk.Prompt{Name: p.name, Description: p.description, Arguments: p.args},
			func(ctx context.Context, req *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
				for _, a := range p.args {
					if a.Required && strings.TrimSpace(req.Params.Arguments[a.Name]) == "" {
						return nil, fmt.Errorf("argument %q is required", a.Name)
					}
				}
				text, err := p.text(s, ctx, req.Params.Arguments)
				if err != nil {
					return nil, err
				}
				return &sdk.GetPromptResult{Description: p.description, Messages: []*sdk.PromptMessage{
					{Role: "user", Content: &sdk.TextContent{Text: text}},
				}}, nil
			})
	}
}

func (s *Server) runPrompt(_ context.Context, args map[string]string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "Use demesne's tools to do this in a sandbox, not on this machine itself:\n\n%s\n\n", args["task"])
	if paths := strings.TrimSpace(args["paths"]); paths != "" {
		fmt.Fprintf(&b, "It needs, read-only below /in by their last names (arguments files and directories): %s.\n", paths)
	}
	b.WriteString("sandbox_script is enough for one command; sandbox_create, sandbox_exec and sandbox_destroy keep state between several. " +
		"Give it only the network it needs (egress). Have results written to /out, and tell me where output_dir is.")
	return b.String(), nil
}

// explained is the number of bytes of a job's output in a prompt.
const explained = 8 << 10

func (s *Server) explainPrompt(ctx context.Context, args map[string]string) (string, error) {
	j, err := s.engine.Status(ctx, args["job_id"])
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The background job %s is %s. %s\n", j.ID, j.Status, j.Message)
	o := j.Outcome
	if o == nil {
		o = &backend.RunResult{}
	}
	if o.Result != nil {
		fmt.Fprintf(&b, "Exit code %d (%s), output in %s.\n", o.Result.ExitCode, o.Result.Reason, o.OutputDir)
	}
	fmt.Fprintf(&b, "\nThe end of its stdout:\n\n%s\n\nThe end of its stderr:\n\n%s\n\nSay what went wrong, and what to do about it.",
		lastLines(o.Stdout.Text, explained), lastLines(o.Stderr.Text, explained))
	return b.String(), nil
}
