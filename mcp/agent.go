package mcp

import (
	"errors"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/agents"
	"demesne/images"
	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/session"
)

// ranAgent is the result of an agent, and the reply to a background one.
type ranAgent struct {
	ran
	Cost      *float64                  `json:"cost_usd,omitempty"`
	Total     *float64                  `json:"total_usage_usd,omitempty"`
	PerModel  map[string]session.Tokens `json:"per_model_tokens,omitempty"`
	UsageLine string                    `json:"usage_summary,omitempty"`
}

var tokenFields = []property{
	field("input", "integer", "without cached tokens").must(), field("output", "integer", "").must(),
	field("cache_creation", "integer", "").must(), field("cache_read", "integer", "").must(),
}

var (
	costField  = field("cost_usd", "number", "of this agent, by list prices")
	totalField = field("total_usage_usd", "number", "with its children")
)

// agentResults is the schema of [ranAgent]. A background reply has only job_id and status.
func agentResults() map[string]any {
	return results(append([]property{
		field("exit_code", "integer", "of the agent's program"), reasonField.minor(), ranMessageField.minor(),
		stderrField, field("stdout", "string", "the final answer, its last 32 KiB"),
		field("output_dir", "string", "/out, on the host; transcript.jsonl, usage.json and results.json are in it"),
		field("job_id", "string", "").must(), field("status", "string", "running or queued, when background"),
		costField, totalField,
		field("per_model_tokens", "object", "").with("additionalProperties", results(tokenFields...)),
		field("usage_summary", "string", "the tokens of each model, in one line"), outputsField.minor(),
	}, ranFields...)...)
}

// modelField lists the models that this machine has credentials and programs for. Without any it says so, and has no
// enum.
func (o *Options) modelField() property {
	if len(o.Models) == 0 {
		return field("model", "string", "No agent has credentials and a program on this machine.").also("docs/guide/agents.md says how to give them.")
	}
	return field("model", "string", "Default "+o.Models[0]+".").with("enum", o.Models)
}

// taskFields are the arguments that sandbox_agent and sandbox_research share.
func (o *Options) taskFields() []property {
	return []property{
		field("prompt", "string", "The task. The agent knows nothing else but its inputs.").must(),
		o.modelField(),
		field("image", "string", "").also("Image with the agent's program. Default: this machine's installation."),
		field("preamble", "string", "Its role.").also("Text before the task in the agent's context file."),
		field("output_path", "string", "File below /out that it must write."), field("output_format", "string", "").also("What that file must look like."),
		listOf("success_criteria", "").also("Conditions that the agent must check before it ends."), field("background", "boolean", "").also("Return at once; the agent runs on as a job."),
		field("max_cost_usd", "number", "").also("End the agent and its children when they have cost this much."),
		field("max_tokens", "integer", "").also("End them when they have used this many tokens: input, cached or not, and output."),
		field("max_turns", "integer", "").also("End them after this many requests to the model."),
		field("timeout_seconds", "number", "").also("End them after this many seconds. Default 48 h."),
	}
}

func (s *Server) agent() tool {
	in := append(s.opts.taskFields(), s.opts.egressField("none"), alsoFilesField(), dirsField(), domainsField.plain(), limitsAlso)
	return tool{
		name: agents.ToolAgent,
		description: "Run a coding agent on a task in its own sandbox, and get its answer. " +
			"max_* (a turn is a model request) and timeout_seconds end it with its children.",
		more: "Use it for work that needs judgement and can be described in one text. The agent writes files to /out, which remains on the host as output_dir.",
		in:   arguments(in...), out: agentResults(),
		hints:  hints{openWorld: true},
		handle: func(c *call) (*sdk.CallToolResult, error) { return c.runAgent(agents.ToolAgent, c.agentRequest) },
	}
}

func (s *Server) research() tool {
	in := s.opts.taskFields()
	in[1] = field("model", "string", "").also("As in sandbox_agent.")
	for i := range in { // sandbox_agent describes them
		in[i] = in[i].plain()
	}
	return tool{
		name:        agents.ToolResearch,
		description: "Run a coding agent with the whole network and no files of this machine. Anyone may receive its prompt: put nothing private in it. It otherwise works as sandbox_agent.",
		in:          arguments(in...), out: agentResults(),
		hints:  hints{openWorld: true},
		handle: func(c *call) (*sdk.CallToolResult, error) { return c.runAgent(agents.ToolResearch, c.researchRequest) },
	}
}

// taskRequest reads the arguments that both tools have.
func (c *call) taskRequest(tool string) (r agents.Request, err error) {
	if r.Prompt, err = c.args.required("prompt"); err != nil {
		return r, err
	}
	if strings.TrimSpace(r.Prompt) == "" {
		return r, errors.New("prompt is required")
	}
	if r.Traits, err = c.traits(); err != nil {
		return r, err
	}
	r.Name, r.Model, r.Preamble = c.args.text("name"), c.args.text("model"), c.args.text("preamble")
	r.OutputPath, r.OutputFormat = c.args.text("output_path"), c.args.text("output_format")
	if r.SuccessCriteria, err = c.args.texts("success_criteria"); err != nil {
		return r, err
	}
	if r.Image, r.Stored, err = c.programImage(); err != nil {
		return r, err
	}
	if c.opts.Model != nil {
		if err := c.opts.Model(r.Model, tool, r.Image); err != nil {
			return r, err
		}
	}
	if r.MaxCost, err = c.cost(); err != nil {
		return r, err
	}
	if r.MaxTokens, err = c.tokens(); err != nil {
		return r, err
	}
	turns, ok := c.args.numeric("max_turns")
	if !ok || !(turns >= 0 && turns <= 1<<31) {
		return r, errors.New("max_turns must be a positive number")
	}
	r.MaxTurns = int(turns)
	r.Timeout, err = c.timeLimit()
	return r, err
}

// programImage returns the image that has the agent's program: see [agents.Request].
func (c *call) programImage() (name string, stored bool, err error) {
	name = c.args.text("image")
	if name == "" || name == "host" {
		return name, false, nil
	}
	_, pull, err := c.image(name)
	return name, pull == images.PullNever, err
}

func (c *call) agentRequest() (agents.Request, error) {
	r, err := c.taskRequest(agents.ToolAgent)
	if err != nil {
		return r, err
	}
	sb, err := c.sandboxRequest("none")
	if err != nil {
		return r, err
	}
	r.Egress, r.Domains, r.Inputs, r.Limits = sb.Create.Egress.Mode, sb.Create.Egress.Allow, sb.Create.Spec.Inputs, sb.Create.Spec.Limits
	return r, nil
}

func (c *call) researchRequest() (agents.Request, error) {
	r, err := c.taskRequest(agents.ToolResearch)
	if err != nil {
		return r, err
	}
	r.Research = true
	if r.Limits, _, err = granted(c.opts.Policy, r.Limits); err != nil {
		return r, err
	}
	return r, c.mayResearch(r) // last, so that a person is asked only about an otherwise valid call
}

func (c *call) runAgent(tool string, request func() (agents.Request, error)) (*sdk.CallToolResult, error) {
	r, err := request()
	if err != nil {
		return nil, err
	}
	if c.args.flag("background") {
		j, err := c.engine.StartAgent(c.ctx, r)
		return c.began(j, err)
	}
	watch, stop := c.watch()
	defer stop()
	o, err := c.engine.Agent(c.ctx, r, watch)
	if err != nil {
		return nil, err
	}
	return c.answerAgent(o), nil
}

func (c *call) answerAgent(o *agents.Result) *sdk.CallToolResult {
	out := ranAgent{ran: outcome(&o.RunResult, "", runner.OutputKept), Cost: &o.Own, Total: &o.Total, PerModel: o.PerModel, UsageLine: o.Summary}
	answer32 := answerText(o.Stdout)
	out.Stdout = &answer32
	out.OutputDir, out.JobID, out.Outputs = o.OutputDir, o.Job, c.written(o.OutputDir)
	summary := ""
	if o.Summary != "" {
		summary = "\nusage_summary: " + o.Summary
	}
	text := fmt.Sprintf("exit_code: %d\noutput_dir: %s\njob_id: %s\ncost_usd: %.4f\ntotal_usage_usd: %.4f%s\n%s---\n%s\n---stderr---\n%s",
		*out.ExitCode, out.OutputDir, out.JobID, o.Own, o.Total, summary, out.lines(), *out.Stdout, *out.Stderr)
	return c.link(withMeta(answer(text, out), o.Result, o.Manifest), out.Outputs)
}

// answerText returns an agent's final answer. If it is cut, a line in front says where the whole is.
func answerText(t session.Tail) string {
	if !t.Cut {
		return t.Text
	}
	return fmt.Sprintf("[stdout truncated to last %d bytes; full transcript in output_dir/transcript.jsonl]\n%s", runner.AnswerKept, t.Text)
}

// began answers a background call.
func (c *call) began(j *session.Job, err error) (*sdk.CallToolResult, error) {
	if err != nil {
		return nil, err
	}
	c.announce(j.ID)
	return answer(fmt.Sprintf("job_id: %s\nstatus: %s", j.ID, j.Status), struct {
		JobID  string      `json:"job_id"`
		Status jobs.Status `json:"status"`
	}{j.ID, j.Status}), nil
}
