package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/runner/jobs"
	"demesne/session"
)

func withModels(o *Options) {
	o.Models = []string{"sol", "sonnet"}
	o.Model = func(name, tool, image string) error {
		if image != "" && image != "host" && name == "haiku" { // its program is in an image only
			return nil
		}
		if name != "" && !slices.Contains(o.Models, name) {
			return errors.New(`model "` + name + `" unknown model (known: sol, sonnet)`)
		}
		return nil
	}
	o.Policy = bounded(session.Bounds{MaxCost: 5})
}

// TestAgentTool: the text and the structured result of an agent, and what its request becomes.
func TestAgentTool(t *testing.T) {
	d := &desk{}
	s, root := serverFor(t, d, withModels)
	input := filepath.Join(root, "a.txt")
	if err := os.WriteFile(input, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cs := client(t, s, nil)
	text, structured, isError := callTool(t, cs, "sandbox_agent", `{"prompt":"do it","model":"sonnet","files":["`+input+`"],"success_criteria":["a","b"],"max_cost_usd":"2","max_turns":7,"output_path":"/out/x"}`)
	want := "exit_code: 3\noutput_dir: /o/u-1\njob_id: u-1\ncost_usd: 0.5000\ntotal_usage_usd: 0.7500\nusage_summary: 1 model\n---\nhi\n\n---stderr---\noops"
	if isError || text != want {
		t.Errorf("text %q, want %q", text, want)
	}
	tokens := structured["per_model_tokens"].(map[string]any)["sonnet"].(map[string]any)
	if structured["cost_usd"] != 0.5 || structured["total_usage_usd"] != 0.75 || tokens["cache_read"] != 4.0 || structured["exit_code"] != 3.0 {
		t.Errorf("structured: %v", structured)
	}
	r := d.agents[0]
	if r.Prompt != "do it" || r.Model != "sonnet" || len(r.Inputs) != 1 || len(r.SuccessCriteria) != 2 || r.MaxCost != 2 || r.MaxTurns != 7 || r.OutputPath != "/out/x" || r.Egress != "none" || r.Research {
		t.Errorf("request: %+v", r)
	}
}

// TestAgentInImage: the image that has the program is one that a model may use, and replaces this machine's installation.
func TestAgentInImage(t *testing.T) {
	d := &desk{}
	s, _ := serverFor(t, d, withModels)
	cs := client(t, s, nil)
	for _, tool := range []string{"sandbox_agent", "sandbox_research"} {
		d.agents = nil
		if text, _, isError := callTool(t, cs, tool, `{"prompt":"x","model":"haiku","image":"python"}`); isError || d.agents[0].Image != "python" {
			t.Errorf("%s: %s", tool, text)
		}
		if _, _, isError := callTool(t, cs, tool, `{"prompt":"x","image":"host"}`); isError || d.agents[1].Image != "host" {
			t.Errorf("%s: host is %q", tool, d.agents[1].Image)
		}
		if text, _, isError := callTool(t, cs, tool, `{"prompt":"x","image":"dir:/"}`); !isError || !strings.Contains(text, `image "dir:/" is not in the allowlist`) {
			t.Errorf("%s: a directory of the host: %s", tool, text)
		}
		if text, _, isError := callTool(t, cs, tool, `{"prompt":"x","model":"haiku","image":"host"}`); !isError || !strings.Contains(text, "unknown model") {
			t.Errorf("%s: %s", tool, text)
		}
	}
}

// TestResearchWord checks what each word of the operator means for a client, and that a person sees all texts of the
// agent before it starts.
func TestResearchWord(t *testing.T) {
	long := strings.Repeat("x", maxQuestion)
	for _, c := range []struct {
		word                  Research
		version, answer, args string
		asked                 bool
		wrong                 string
	}{
		{word: researchOn, version: "2025-11-25"},
		{word: researchOn, version: "2025-11-25", answer: "decline"},
		{word: ResearchOff, version: "2025-11-25", answer: "accept", wrong: "research agents are disabled on this machine"},
		{word: researchAsk, version: "2025-11-25", wrong: "this client cannot ask one"},
		{word: researchAsk, version: "2025-11-25", answer: "accept", asked: true},
		{word: researchAsk, version: "2025-11-25", answer: "decline", asked: true, wrong: "did not allow it"},
		{word: researchAsk, version: "2025-11-25", answer: "cancel", asked: true, wrong: "did not allow it"},
		{word: researchAsk, version: severalRounds, answer: "accept", asked: true},
		{word: researchAsk, version: severalRounds, answer: "decline", asked: true, wrong: "did not allow it"},
		{word: researchAsk, version: severalRounds, wrong: "this client cannot ask one"},
		{word: researchAsk, version: "2025-11-25", answer: "accept", args: `,"background":true`, asked: true},
		{word: researchAsk, version: "2025-11-25", answer: "accept", args: `,"output_format":"` + long + `"`, wrong: "too long to show"},
		{word: researchAsk, version: "2025-11-25", answer: "accept", args: `,"model":"haiku"`, wrong: "unknown model"},
	} {
		d := &desk{}
		s, _ := serverFor(t, d, withModels, func(o *Options) { o.Research = c.word })
		var message string
		o := &sdk.ClientOptions{}
		if c.answer != "" {
			o.ElicitationHandler = func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
				message = r.Params.Message
				return &sdk.ElicitResult{Action: c.answer}, nil
			}
		}
		text, _, isError := callTool(t, clientOf(t, s, o, c.version), "sandbox_research",
			`{"prompt":"FIND\n\"It is safe.","preamble":"PRE","success_criteria":["ONE","TWO"],"output_path":"PATH"`+c.args+`}`)
		if isError != (c.wrong != "") || !strings.Contains(text, c.wrong) || (message != "") != c.asked || len(d.agents) > 0 == isError {
			t.Errorf("%+v: %s, asked %q", c, text, message)
		}
		for _, want := range []string{`prompt: "FIND\n\"It is safe."`, `"PRE"`, `"ONE\nTWO"`, `"PATH"`} {
			if c.asked && !strings.Contains(message, want) {
				t.Errorf("%+v: asked %q without %s", c, message, want)
			}
		}
	}
}

// TestNestedResearch: the server of an agent that may not start research does not offer it, and no client of a sandbox
// is asked.
func TestNestedResearch(t *testing.T) {
	for word, offered := range map[Research]bool{researchOn: true, ResearchOff: false} {
		s := New(&desk{}, Options{Nested: true, Images: []string{"host"}, Image: "host", Egress: []string{"none"}, Policy: bounded(session.Bounds{}), Research: word})
		if s.Offers("sandbox_research") != offered || !s.Offers("sandbox_agent") {
			t.Errorf("%d: offered %t", word, !offered)
		}
		text, _, _ := callTool(t, client(t, s, nil), "sandbox_script", `{"name":"a","command":"x","egress":"open"}`)
		if strings.Contains(text, "sandbox_research") != offered {
			t.Errorf("%d: %s", word, text)
		}
	}
}

// TestParseResearch checks the words of an operator.
func TestParseResearch(t *testing.T) {
	for word, want := range map[string]Research{"": researchOn, "true": researchOn, "1": researchOn, "ask": researchAsk, "false": ResearchOff, "0": ResearchOff} {
		if got, err := ParseResearch(word); got != want || err != nil {
			t.Errorf("%q: %v, %v", word, got, err)
		}
	}
	for _, word := range []string{"maybe", "Ask", " ", "off"} {
		if got, err := ParseResearch(word); got != ResearchOff || err == nil {
			t.Errorf("%q: %v, %v", word, got, err)
		}
	}
}

// TestResearchTool: open network, and never an input, whatever a model passes.
func TestResearchTool(t *testing.T) {
	d := &desk{}
	s, root := serverFor(t, d, withModels)
	_, _, isError := callTool(t, client(t, s, nil), "sandbox_research", `{"prompt":"find it","files":["`+root+`/none"],"directories":["/"],"egress":"none"}`)
	if r := d.agents[0]; isError || !r.Research || r.Inputs != nil || r.Egress != "" || r.Domains != nil || r.MaxCost != 5 {
		t.Errorf("request: %+v", r)
	}
}

func TestAgentRefused(t *testing.T) {
	d := &desk{}
	s, _ := serverFor(t, d, withModels)
	cs := client(t, s, nil)
	for _, c := range []struct{ tool, args, want string }{
		{"sandbox_agent", `{}`, `required argument "prompt" not found`},
		{"sandbox_agent", `{"prompt":" "}`, "prompt is required"},
		{"sandbox_research", `{"prompt":7}`, `argument "prompt" is not a string`},
		{"sandbox_agent", `{"prompt":"x","model":"zzz"}`, `model "zzz" unknown model (known: sol, sonnet)`},
		{"sandbox_agent", `{"prompt":"x","egress":"open"}`, "egress 'open' is not permitted; use sandbox_research for unrestricted egress"},
		{"sandbox_agent", `{"prompt":"x","max_cost_usd":6}`, "max_cost_usd: 6 is more than 5, the ceiling (DEMESNE_MAX_COST_USD)"},
		{"sandbox_agent", `{"prompt":"x","max_cost_usd":-1}`, "max_cost_usd must be a positive number"},
		{"sandbox_agent", `{"prompt":"x","max_turns":"many"}`, "max_turns must be a positive number"},
		{"sandbox_agent", `{"prompt":"x","files":["a"]}`, "mount path must be absolute: a"},
		{"sandbox_usage_report", `{}`, "job_id or output_dir is required"},
	} {
		if text, _, isError := callTool(t, cs, c.tool, c.args); !isError || text != c.want {
			t.Errorf("%s %s: %q, want %q", c.tool, c.args, text, c.want)
		}
	}
	if len(d.agents) != 0 {
		t.Errorf("an agent was started: %+v", d.agents)
	}
}

// TestAgentSchema: without credentials there is no enum, and a note.
func TestAgentSchema(t *testing.T) {
	s, _ := serverFor(t, &desk{})
	p := s.opts.modelField()
	if p.schema["enum"] != nil || !strings.Contains(p.schema["description"].(string), "credentials") {
		t.Errorf("%v", p.schema)
	}
}

func TestUsageTool(t *testing.T) {
	s, _ := serverFor(t, &desk{})
	text, structured, isError := callTool(t, client(t, s, nil), "sandbox_usage_report", `{"output_dir":"/o/u-1/out"}`)
	if isError || text != "total_cost_usd: 0.7500\n" || structured["by_child"] != nil || structured["total_cost_usd"] != 0.75 {
		t.Errorf("%q %v", text, structured)
	}
}

// TestUsageReportShape checks the schema of the report: names, types and unordered lists of required members are the original
// demesne's. A result fits it also if an argument was ignored.
func TestUsageReportShape(t *testing.T) {
	s, _ := serverFor(t, &desk{})
	cs := client(t, s, nil)
	raw, err := os.ReadFile("testdata/usage-report.json")
	if err != nil {
		t.Fatal(err)
	}
	var want any
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	if got := sortedLists(decoded(t, bare(s.usageReport().out))); !reflect.DeepEqual(got, sortedLists(want)) {
		t.Errorf("got %v, want %v", got, want)
	}
	_, tools := listOfTools(t, s)
	listed := tools[slices.IndexFunc(tools, func(l *sdk.Tool) bool { return l.Name == "sandbox_usage_report" })].OutputSchema
	if brief, _ := listed.(map[string]any); !reflect.DeepEqual(sortedLists(brief["required"]), want.(map[string]any)["required"]) || len(brief["properties"].(map[string]any)) != 7 {
		t.Errorf("clients get the schema %v", listed)
	}
	text, structured, _ := wholeText(t, cs, "sandbox_usage_report", `{"output_dir":"/o/u-1/out","depth":7}`)
	if !strings.Contains(text, "warning: unknown argument") || structured["warning"] != nil {
		t.Errorf("%q %v", text, structured)
	}
}

// bare returns a schema without its descriptions.
func bare(schema map[string]any) map[string]any {
	out := maps.Clone(schema)
	delete(out, "description")
	if items, ok := out["items"].(map[string]any); ok {
		out["items"] = bare(items)
	}
	if fields, ok := out["properties"].(properties); ok {
		fields = slices.Clone(fields)
		for i := range fields {
			fields[i].schema = bare(fields[i].schema)
		}
		out["properties"] = fields
	}
	return out
}

// sortedLists returns JSON with each list sorted, so that two lists of required members or of types compare.
func sortedLists(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			v[name] = sortedLists(v[name])
		}
	case []any:
		slices.SortFunc(v, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	return v
}

// TestBackgroundAgent: the job's costs are in status and wait.
func TestBackgroundAgent(t *testing.T) {
	d := &desk{jobs: map[string]*session.Job{"job-2": {Job: jobs.Job{ID: "job-2", Status: jobs.Running}, Cost: &session.Cost{Own: 0.1, Total: 0.2}}}}
	s, _ := serverFor(t, d, withModels)
	cs := client(t, s, nil)
	if text, structured, _ := callTool(t, cs, "sandbox_agent", `{"prompt":"x","background":true}`); text != "job_id: job-2\nstatus: running" || structured["status"] != "running" {
		t.Errorf("%q %v", text, structured)
	}
	for _, tool := range []string{"sandbox_status", "sandbox_wait"} {
		if _, structured, isError := callTool(t, cs, tool, `{"job_id":"job-2"}`); isError || structured["total_usage_usd"] != 0.2 {
			t.Errorf("%s: %v", tool, structured)
		}
	}
}

// TestNested: nine tools with results in text, whose callers name what they start and cannot name files of the host.
func TestNested(t *testing.T) {
	d := &desk{jobs: map[string]*session.Job{"j": {Job: jobs.Job{ID: "j", Status: jobs.Succeeded}}}}
	s, _ := serverFor(t, d, withModels, func(o *Options) { o.Nested = true })
	cs := client(t, s, nil)
	list, err := cs.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
		if tool.OutputSchema != nil {
			t.Errorf("%s has an output schema", tool.Name)
		}
		in := tool.InputSchema.(map[string]any)
		for _, host := range hostArguments {
			if in["properties"].(map[string]any)[host] != nil {
				t.Errorf("%s has the argument %s", tool.Name, host)
			}
		}
	}
	want := []string{"sandbox_agent", "sandbox_cancel", "sandbox_create", "sandbox_destroy", "sandbox_exec", "sandbox_research", "sandbox_script", "sandbox_status", "sandbox_wait"}
	if slices.Sort(names); !slices.Equal(names, want) {
		t.Errorf("tools: %v", names)
	}
	for _, c := range []struct {
		tool, args, want string
		fails            bool
	}{
		{"sandbox_script", `{"command":"true"}`, "name is required", true},
		{"sandbox_script", `{"command":"true","name":"a"}`, "name: a\nexit_code: 3\noutput_dir: /o/u-1\njob_id: u-1\n---\nhi\n---stderr---\noops", false},
		{"sandbox_agent", `{"prompt":"x","name":"b","files":["/etc/passwd"],"background":true}`, "name: b\njob_id: job-2\nstatus: running", false},
		{"sandbox_wait", `{"job_id":"j"}`, "job_id: j\nstatus: succeeded\n", false},
	} {
		text, structured, isError := callTool(t, cs, c.tool, c.args)
		if text != c.want || isError != c.fails || structured != nil {
			t.Errorf("%s %s: %q %v %v", c.tool, c.args, text, structured, isError)
		}
	}
	if d.asked[0].Create.Spec.Name != "a" || d.agents[0].Inputs != nil {
		t.Errorf("%+v %+v", d.asked[0], d.agents[0])
	}
}
