package mcp

import (
	"context"
	"fmt"
	"strings"

	"demesne/session"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
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
		name: "run_in_sandbox", description: "Do a task in a sandbox that can read chosen files of this machine",
		args: []*sdk.PromptArgument{
			{Name: "task", Description: "the task", Required: true},
			{Name: "paths", Description: "files or directories that the task needs, separated by commas"},
		},
		text: (*Server).runPrompt,
	},
	{
		name: "explain_job", description: "Explain how a background job ended",
		args: []*sdk.PromptArgument{{Name: "job_id", Description: "job_id from sandbox_script", Required: true}},
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
	b.WriteString("Use sandbox_script for one command, and sandbox_create, sandbox_exec and sandbox_destroy to keep state between commands. " +
		"Allow only the network access it needs (egress). Write results to /out, and tell me where output_dir is.")
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
	o := j.Outcome
	if o == nil {
		o = &session.RunResult{}
	}
	fmt.Fprintf(&b, "The background job %s is %s. %s\n", j.ID, j.Status.With(o.Result), j.Message)
	if o.Result != nil {
		fmt.Fprintf(&b, "Exit code %d (%s), output in %s.\n", o.Result.ExitCode, o.Result.Reason, o.OutputDir)
	}
	fmt.Fprintf(&b, "\nThe end of its stdout:\n\n%s\n\nThe end of its stderr:\n\n%s\n\nExplain what went wrong and how to fix it.",
		lastLines(o.Stdout.Text, explained), lastLines(o.Stderr.Text, explained))
	return b.String(), nil
}
