package mcp

import (
	"fmt"

	"demesne/session"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func (s *Server) exec() tool {
	return tool{
		name: "sandbox_exec",
		description: "Run a shell command in a sandbox of sandbox_create. Files and background processes stay: " +
			"start a server with `cmd >/tmp/log 2>&1 &`, and reach it at 127.0.0.1 in later calls.",
		more: "It renews the sandbox's time to live.",
		in: arguments(boxField, s.opts.commandField(""),
			timeoutField, outputField.described(briefOutput), envField, cwdField("/out"), stdinField, s.opts.rarely(queueField), s.opts.rarely(commandsField), s.opts.rarely(goOnField)),
		out:    results(append([]property{exitCodeField.must(), reasonField.minor(), ranMessageField.minor(), stderrField.must(), stdoutField.must(), ranStepsField}, ranFields...)...),
		hints:  hints{destructive: true, openWorld: true},
		handle: (*call).execute,
	}
}

func (c *call) execute() (*sdk.CallToolResult, error) {
	id, err := c.args.required("sandbox_id")
	if err != nil {
		return nil, err
	}
	var r session.Request
	if err := c.commandRequest(&r); err != nil {
		return nil, err
	}
	watch, stop := c.watch()
	defer stop()
	o, err := c.engine.Exec(c.ctx, id, r, watch)
	if err != nil {
		return nil, err
	}
	out := outcome(o, "", r.Run.Shown)
	steps, said := ranSteps(&r, o)
	if out.Commands = steps; steps != nil {
		return withMeta(answer(said, out), o.Result.Receipt, ""), nil
	}
	text := fmt.Sprintf("exit_code: %d\n%s---\n%s\n---stderr---\n%s", *out.ExitCode, out.lines(), *out.Stdout, *out.Stderr)
	return withMeta(answer(text, out), o.Result.Receipt, ""), nil
}
