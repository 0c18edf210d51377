package mcp

import (
	"fmt"

	"demesne/session"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func (s *Server) script() tool {
	return tool{
		name: "sandbox_script",
		description: "Run one shell command or script in a fresh sandbox and get its output. Write results to /out, which stays on the host as output_dir. " +
			"background=true returns a job_id at once for sandbox_wait, sandbox_status and sandbox_cancel.",
		more: "A background job runs on when the server ends.",
		in: arguments(
			s.opts.commandField("For /bin/sh -c, as root of the sandbox."), s.opts.imageField(),
			s.opts.egressField("package-managers").described("Network. none, or only npm, PyPI, conda, Go, Debian, Ubuntu, Alpine, Cargo, RubyGems. Default "+s.opts.egressDefault("package-managers")+"."),
			s.opts.filesField(), dirsField(), field("background", "boolean", "").also("Return at once; the command runs on as a job."),
			timeoutField.described("Then the command is killed, with exit code 124. Default 48 h."), outputField, envField, cwdField("/out"), stdinField, limitsField, domainsField, askField, s.opts.secretsField(),
			keyField.described("Run in the persistent sandbox with this key, made if necessary.").also("See sandbox_create."), replaceField, s.opts.rarely(nameField), s.opts.rarely(queueField), s.opts.rarely(commandsField), s.opts.rarely(goOnField), s.opts.rarely(labelsField),
		),
		out: results(append([]property{
			exitCodeField, reasonField.minor(), ranMessageField.minor(), stderrField, stdoutField,
			field("output_dir", "string", "/out, on the host; stdout.log and stderr.log are in it"),
			field("job_id", "string", "").must(), field("status", "string", "running or queued, when background"), outputsField.minor(), ranStepsField,
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
		if r.Traits, err = c.traits(); err != nil {
			return nil, err
		}
		return c.startJob(r)
	}
	watch, stop := c.watch()
	defer stop()
	o, err := c.engine.Script(c.ctx, r, watch)
	if err != nil {
		return nil, err
	}
	where := "output_dir"
	if r.Create.Spec.Key != "" { // other commands write to that directory too
		where = ""
	}
	out := outcome(o, where, r.Run.Shown)
	out.OutputDir, out.JobID, out.Outputs = o.OutputDir, o.Job, c.written(o.OutputDir)
	steps, said := ranSteps(&r, o)
	if out.Commands = steps; steps != nil {
		return c.link(withMeta(answer(said+"output_dir: "+o.OutputDir, out), o.Result, o.Manifest), out.Outputs), nil
	}
	text := fmt.Sprintf("exit_code: %d\noutput_dir: %s\njob_id: %s\n%s---\n%s---stderr---\n%s",
		*out.ExitCode, out.OutputDir, out.JobID, out.lines(), *out.Stdout, *out.Stderr)
	return c.link(withMeta(answer(text, out), o.Result, o.Manifest), out.Outputs), nil
}

func (c *call) startJob(r session.Request) (*sdk.CallToolResult, error) {
	j, err := c.engine.Start(c.ctx, r)
	return c.began(j, err)
}

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
		return withMeta(answer(said, out), o.Result, o.Manifest), nil
	}
	text := fmt.Sprintf("exit_code: %d\n%s---\n%s\n---stderr---\n%s", *out.ExitCode, out.lines(), *out.Stdout, *out.Stderr)
	return withMeta(answer(text, out), o.Result, o.Manifest), nil
}
