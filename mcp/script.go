package mcp

import (
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/mcp/backend"
)

func (s *Server) script() tool {
	return tool{
		name: "sandbox_script",
		description: "Run one shell command or script in a fresh sandbox and get its output. " +
			"Use it for work that needs no later state, or with a key to keep state. Write results to /out, which remains on the host as output_dir. " +
			"With background=true it returns at once with a job_id for sandbox_status, sandbox_wait and sandbox_cancel.",
		in: arguments(
			field("command", "string", "Shell text for /bin/sh -c. It runs in /out as root of the sandbox.").must(),
			s.opts.imageField(), s.opts.egressField("package-managers"), s.opts.filesField(), s.opts.dirsField(),
			field("background", "boolean", "Return at once; the command runs on as a job.").with("default", false),
			timeoutField, envField, cwdField("/out"), stdinField, limitsField, domainsField, askField, nameField,
			keyField.with("description", "Run in the persistent sandbox with this key, and create it if necessary: see sandbox_create."), replaceField, queueField,
		),
		out: results(append([]property{
			field("exit_code", "integer", "of the command; 124: timed out; 128+n: ended by signal n"),
			field("output_dir", "string", "/out, on the host; stdout.log and stderr.log are in it"),
			field("job_id", "string", "").must(),
			field("status", "string", "running or queued, when background"),
			field("stdout", "string", ""), field("stderr", "string", "the last 16 KiB"), outputsField, manifestField,
		}, ranFields...)...),
		hints:  hints{openWorld: true},
		handle: (*call).runScript,
	}
}

func (c *call) runScript() (*sdk.CallToolResult, error) {
	r, err := c.sandboxRequest("package-managers")
	if err != nil {
		return nil, err
	}
	if err := c.commandRequest(&r); err != nil {
		return nil, err
	}
	if c.args.flag("background") {
		return c.startJob(r)
	}
	watch, stop := c.watch()
	defer stop()
	o, err := c.engine.Script(c.ctx, r, watch)
	if err != nil {
		return nil, err
	}
	where := "output_dir"
	if r.Spec.Key != "" { // other commands write to that directory too
		where = ""
	}
	out := outcome(o, where)
	out.OutputDir, out.JobID, out.Manifest, out.Outputs = o.OutputDir, o.Job, o.Manifest, c.written(o.OutputDir)
	text := fmt.Sprintf("exit_code: %d\noutput_dir: %s\njob_id: %s\n---\n%s---stderr---\n%s",
		*out.ExitCode, out.OutputDir, out.JobID, *out.Stdout, *out.Stderr)
	return c.link(c.withReceipt(answer(text, out), o.Result.Receipt), out.Outputs), nil
}

func (c *call) startJob(r backend.Request) (*sdk.CallToolResult, error) {
	j, err := c.engine.Start(c.ctx, r)
	return c.began(j, err)
}
