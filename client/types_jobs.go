package client

import "time"

// JobTraits are what the starter of a job says about it.
type JobTraits struct {
	Labels map[string]string `json:"labels,omitempty" doc:"At most 64: names of at most 128 bytes, values of at most 1024"`
}

// JobRequest asks for a command in a new sandbox, which runs without the request. Without a network it reaches nothing.
type JobRequest struct {
	Command
	JobTraits
	Image   string   `json:"image,omitempty" maxLength:"512" example:"python:3.12" doc:"Empty: the server's own"`
	Limits  *Limits  `json:"limits,omitempty" doc:"At most the operator's"`
	Network *Network `json:"network,omitempty" doc:"deny and ask are not possible"`
}

// Job describes a background job, or an agent.
type Job struct {
	JobTraits
	ID           string    `json:"id"`
	Status       string    `json:"status" enum:"queued,running,succeeded,failed,cancelled" doc:"failed: the command ended with another exit code than 0, or could not run"`
	Command      string    `json:"command,omitempty" doc:"The command, or an agent's prompt; its beginning"`
	Conversation string    `json:"conversation,omitempty" doc:"Of an agent: the same for a run and its follow-ups"`
	Agent        bool      `json:"agent,omitempty"`
	Started      time.Time `json:"started"`
	Ended        time.Time `json:"ended,omitzero"`
	Exit         *int      `json:"exit_code,omitempty" doc:"After the end"`
	Reason       string    `json:"reason,omitempty" doc:"Why the command ended, as in a result"`
	Message      string    `json:"message,omitempty" doc:"Why it failed, or how many jobs are before it"`
	Spent
	Cost   *AgentCost `json:"cost,omitempty" doc:"The cost of an agent"`
	Stdout *Output    `json:"stdout,omitempty" doc:"Not in a list. Of an agent: what it does, and at its end the answer"`
	Stderr *Output    `json:"stderr,omitempty" doc:"Not in a list"`
	Run    string     `json:"run,omitempty" doc:"Names what was left in /out: see /v1/outputs"`
}

// OutputFile is a file that a run left in /out.
type OutputFile struct {
	Path string `json:"path" doc:"Below /out"`
	Size int64  `json:"size" doc:"Bytes"`
	MIME string `json:"mime_type" doc:"By the name; the content is the sandbox's"`
}

// AgentCost is what an agent used so far.
type AgentCost struct {
	Own    float64           `json:"own_usd"`
	Total  float64           `json:"total_usd" doc:"The cost with its children"`
	Models map[string]Tokens `json:"models,omitempty" doc:"By model, with its children"`
}

// Tokens counts tokens.
type Tokens struct {
	Input         int64 `json:"input"`
	Output        int64 `json:"output"`
	CacheCreation int64 `json:"cache_creation"`
	CacheRead     int64 `json:"cache_read"`
}

// AgentRequest asks for a coding agent in a sandbox of its own. It is a job.
type AgentRequest struct {
	JobTraits
	Prompt       string      `json:"prompt" minLength:"1" maxLength:"1048576"`
	Continue     string      `json:"continue,omitempty" maxLength:"64" doc:"Job of a conversation, whose session the agent resumes. Only prompt, files, labels and bounds are possible then"`
	Files        []NamedFile `json:"files,omitempty" maxItems:"32" doc:"In /in, beside the files of the conversation"`
	Model        string      `json:"model,omitempty" maxLength:"256" doc:"Empty: the server's own"`
	Image        string      `json:"image,omitempty" maxLength:"512" doc:"Image with the agent's program"`
	Preamble     string      `json:"preamble,omitempty" maxLength:"1048576" doc:"Text before the task"`
	OutputPath   string      `json:"output_path,omitempty" maxLength:"4096" doc:"File below /out that it must write"`
	OutputFormat string      `json:"output_format,omitempty" maxLength:"65536"`
	Criteria     []string    `json:"success_criteria,omitempty" maxItems:"1000"`
	Research     bool        `json:"research,omitempty" doc:"The whole network, and no inputs"`
	Network      *Network    `json:"network,omitempty" doc:"Only modes that let no data out. deny and ask are not possible"`
	Limits       *Limits     `json:"limits,omitempty"`
	MaxCost      float64     `json:"max_cost_usd,omitempty" minimum:"0"`
	MaxTokens    int64       `json:"max_tokens,omitempty" minimum:"0" doc:"Input, cached or not, and output"`
	MaxTurns     int         `json:"max_turns,omitempty" minimum:"0" doc:"Requests to the model"`
	TimeoutMS    int64       `json:"timeout_ms,omitempty" minimum:"0" maximum:"172800000"`
}

// NamedFile is a file with its content.
type NamedFile struct {
	Name    string `json:"name" minLength:"1" maxLength:"255" doc:"Without a directory"`
	Content []byte `json:"content,omitempty" doc:"In base64; of all files at most 8 MiB"`
}

// Trace is what an agent did. Texts come from the agent, and are shortened.
type Trace struct {
	Events   []TraceEvent   `json:"events" nullable:"false" doc:"The newest, at most 2000"`
	Requests []ModelRequest `json:"requests" nullable:"false" doc:"To the model, the newest, at most 2000"`
}

// TraceEvent is one step of an agent.
type TraceEvent struct {
	Event  string  `json:"event" enum:"session,text,tool_call,tool_result,step,rate_limit,error,result"`
	Model  string  `json:"model,omitempty"`
	Agent  string  `json:"agent,omitempty" doc:"The kind of subagent; empty for the agent itself"`
	Tool   string  `json:"tool,omitempty"`
	ID     string  `json:"id,omitempty" doc:"The id of a tool call and its result"`
	Text   string  `json:"text,omitempty"`
	Failed bool    `json:"failed,omitempty"`
	Cost   float64 `json:"cost_usd,omitempty"`
}

// ModelRequest is one request of an agent to its model.
type ModelRequest struct {
	Time  time.Time `json:"time"`
	Model string    `json:"model"`
	Tokens
}
