package mcp

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"demesne/runner"
	"demesne/session"
)

// Arguments of sandbox_script and sandbox_exec in the set "sandboxes": a list of commands in place of one.
var (
	commandsField = field("commands", "array", "Instead of command: commands to run in turn, until one fails. Each has shell or argv.").with("items", arguments(
		field("shell", "string", ""), listOf("argv", ""), field("cwd", "string", ""), tableOf("env", ""),
		field("timeout_ms", "integer", ""), field("allow_failure", "boolean", ""),
	))
	goOnField = field("continue_on_error", "boolean", "Run all commands, even if one fails.")
)

// commandField returns the argument command, which commands can replace in the set "sandboxes".
func (o *Options) commandField(description string) property {
	p := field("command", "string", description)
	if o.has(setSandboxes) {
		return p
	}
	return p.must()
}

// whatRequest reads the argument command, or commands.
func (c *call) whatRequest(r *session.Request) error {
	if list := c.args["commands"]; list != nil && c.opts.has(setSandboxes) {
		return c.stepsRequest(r, list)
	}
	text, err := c.args.required("command")
	if err != nil {
		return err
	}
	if strings.TrimSpace(text) == "" {
		return fmt.Errorf("command is required")
	}
	r.Run.Command.Argv = session.Shell(text)
	return checkArg("command", text)
}

func checkArg(what, text string) error {
	if strings.ContainsRune(text, 0) {
		return fmt.Errorf("%s has a NUL byte", what)
	}
	if len(text) > longestArg {
		return fmt.Errorf("%s is longer than %d bytes: pass long text on stdin or in a file", what, longestArg)
	}
	return nil
}

func (c *call) stepsRequest(r *session.Request, list any) error {
	switch {
	case c.args.text("command") != "":
		return fmt.Errorf("command and commands exclude each other")
	case c.args.flag("background"):
		return fmt.Errorf("commands: not possible with background")
	case c.args.text("stdin") != "":
		return fmt.Errorf("commands: not possible with stdin")
	}
	raw, err := json.Marshal(list)
	if err != nil {
		return err
	}
	if r.Run.Steps.List, err = runner.ParseSteps(raw); err != nil {
		return err
	}
	for i := range r.Run.Steps.List {
		for _, word := range slices.Concat(r.Run.Steps.List[i].Argv, r.Run.Steps.List[i].Env) {
			if err := checkArg(fmt.Sprintf("commands[%d]", i), word); err != nil {
				return err
			}
		}
	}
	r.Run.Steps.GoOn = c.args.flag("continue_on_error")
	return nil
}

// ranStep is the result of one command of a list.
type ranStep struct {
	Index   int    `json:"index"`
	Command string `json:"command"`
	Failed  bool   `json:"failed"`
	Skipped bool   `json:"skipped,omitempty"` // it did not run, because an earlier one failed
	ran
}

var ranStepsField = field("commands", "array", "the commands of the list, in turn; those behind a failed one are skipped and have no exit_code").with("items", map[string]any{"type": "object"}).minor()

// ranSteps returns the results of a list, and a text for each.
func ranSteps(r *session.Request, o *session.RunResult) (all []ranStep, text string) {
	list := r.Run.Steps.List
	for _, d := range o.Steps {
		one := ranStep{Index: d.Step, Command: list[d.Step].Text(), Failed: d.Failed, ran: outcome(d, "", r.Run.Shown)}
		if one.Message == "" {
			one.Message = d.Result.Detail
		}
		all = append(all, one)
		text += fmt.Sprintf("commands[%d]: exit_code: %d %s\n---\n%s\n---stderr---\n%s\n", one.Index, *one.ExitCode, one.Message, *one.Stdout, *one.Stderr)
	}
	if len(o.Steps) == 0 {
		return nil, ""
	}
	for i := o.Steps[len(o.Steps)-1].Step + 1; i < len(list); i++ {
		all = append(all, ranStep{Index: i, Command: list[i].Text(), Skipped: true})
		text += fmt.Sprintf("commands[%d]: skipped\n", i)
	}
	return all, text
}
