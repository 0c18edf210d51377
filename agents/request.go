package agents

import (
	"time"

	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/session"
)

// Request is a checked request to run a coding agent. It is also the form in which such a job is stored on disk.
type Request struct {
	jobs.Traits
	Name  string `json:",omitempty"` // of a child, unique among the children of one agent; empty for the first agent
	Dir   string `json:",omitempty"` // of the run, below the output root; empty: a new one
	Model string // empty: the default of this machine

	Image  string `json:",omitempty"` // that has the agent's program; host: this machine's installation; empty: the parent's, that, or the row's image
	Stored bool   `json:",omitempty"` // the image must be in the store: no registry is asked

	// Continues is the directory, below the output root, of the first run of a conversation: see [FollowUp]. No tool sets it.
	Continues string `json:",omitempty"`

	Prompt, Preamble         string
	OutputPath, OutputFormat string   `json:",omitempty"`
	SuccessCriteria          []string `json:",omitempty"`

	// Script is shell text that runs in place of a coding agent, without a model. No tool sets it.
	Script string `json:",omitempty"`

	Research bool `json:",omitempty"` // the whole network, and no inputs
	// AllowResearch lets agents of the tree that do not reach the whole network start ones that do. No tool sets it: only
	// a person can.
	AllowResearch bool `json:",omitempty"`

	Egress  string         `json:",omitempty"` // name of an egress mode; the model's interface is always there
	Domains []string       `json:",omitempty"` // egress rules in addition to the mode
	Inputs  []runner.Input `json:",omitempty"` // of the first agent; children inherit them
	Limits  runner.Limits

	// Workspace is the directory of the host that the first agent and its children share as /workspace. No tool sets it:
	// only a person can let an agent write there. Empty: a new one.
	Workspace string `json:",omitempty"`

	// Bounds of the run with all its children. A child's can only be narrower than what its parent has left. 0: none.
	MaxCost   float64       `json:",omitempty"` // US dollars
	MaxTurns  int           `json:",omitempty"` // requests to the model
	MaxTokens int64         `json:",omitempty"` // of all kinds together
	Timeout   time.Duration `json:",omitempty"`
}

// The tools that start agents.
const (
	ToolAgent    = "sandbox_agent"
	ToolResearch = "sandbox_research"
)

// Tool returns the name of the tool that starts such an agent.
func (r *Request) Tool() string {
	if r.Research {
		return ToolResearch
	}
	return ToolAgent
}

// Result is the result of an agent. Stdout is its final answer, at most [runner.AnswerKept] bytes.
type Result struct {
	session.RunResult
	session.Cost
}

// UsageReport is what an agent run and its children used.
type UsageReport struct {
	TotalCost  float64         `json:"total_cost_usd"`
	Totals     session.Tokens  `json:"token_type_totals"`
	CacheRead  float64         `json:"cache_read_pct"` // of all input tokens, in percent
	ByModel    []ModelUsage    `json:"by_model"`
	ByChild    []ChildUsage    `json:"by_child"`
	BySubagent []SubagentUsage `json:"by_subagent"`
	Dropped    DroppedUsage    `json:"dropped"`
	Text       string          `json:"-"` // the same as tables, for a person
}

// ModelUsage is the part of one model.
type ModelUsage struct {
	Model string `json:"model"`
	session.Tokens
	Cost float64 `json:"cost_usd"`
}

// ChildUsage is the part of one child, without its own children.
type ChildUsage struct {
	Name  string  `json:"name"`
	Depth int     `json:"depth"` // 1: a child of the first agent
	Cost  float64 `json:"cost_usd"`
	session.Tokens
}

// SubagentUsage is the part of one kind of subagent that the agent's program started within its own sandbox.
type SubagentUsage struct {
	Name string `json:"name"`
	session.Tokens
	Cost     float64 `json:"cost_usd"`
	Requests int     `json:"requests"`
}

// DroppedUsage counts responses whose tokens could not be counted.
type DroppedUsage struct {
	ParseErrors  int `json:"parse_errors"`
	NoUsageBlock int `json:"no_usage_block"`
}

// Message is one line, as JSON, from the program that runs agents to the frontend that started it. The first line on its
// input is an [Request]; the end of its input cancels the run. The last event has a Result or an Error.
type Message struct {
	Progress string  `json:",omitempty"` // what the agent does, one line
	Result   *Result `json:",omitempty"`
	Error    string  `json:",omitempty"`
	Hint     string  `json:",omitempty"`
}
