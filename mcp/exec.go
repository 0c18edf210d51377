package mcp

import (
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/mcp/backend"
)

func (s *Server) exec() tool {
	return tool{
		name: "sandbox_exec",
		description: "Run a shell command in a sandbox from sandbox_create. Files and background processes remain for the next call. " +
			"Renews the sandbox's time to live.",
		in: arguments(
			field("sandbox_id", "string", "sandbox_id from sandbox_create, or the sandbox's name").must(),
			field("command", "string", "Shell text for /bin/sh -c.").must(),
			timeoutField, envField, cwdField("/out"), stdinField, queueField,
		),
		out: results(append([]property{
			field("exit_code", "integer", "of the command; 124: timed out; 128+n: ended by signal n").must(),
			field("stdout", "string", "").must(), field("stderr", "string", "the last 16 KiB").must(),
		}, ranFields...)...),
		hints:  hints{destructive: true, openWorld: true},
		handle: (*call).execute,
	}
}

func (c *call) execute() (*sdk.CallToolResult, error) {
	id, err := c.args.required("sandbox_id")
	if err != nil {
		return nil, err
	}
	var r backend.Request
	if err := c.commandRequest(&r); err != nil {
		return nil, err
	}
	watch, stop := c.watch()
	defer stop()
	o, err := c.engine.Exec(c.ctx, id, r, watch)
	if err != nil {
		return nil, err
	}
	out := outcome(o, "")
	text := fmt.Sprintf("exit_code: %d\n---\n%s\n---stderr---\n%s", *out.ExitCode, *out.Stdout, *out.Stderr)
	return c.withReceipt(answer(text, out), o.Result.Receipt), nil
}
