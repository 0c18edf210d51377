package mcp

import (
	"errors"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func (s *Server) usageReport() tool {
	row := func(props ...property) map[string]any { return results(append(props, tokenFields...)...) }
	cost := field("cost_usd", "number", "").must()
	return tool{
		name:        "sandbox_usage_report",
		description: "Report what an agent and its children cost: give job_id or output_dir.",
		more:        "It has rows by model, by child and by subagent.",
		in:          arguments(field("job_id", "string", ""), field("output_dir", "string", "")),
		out: results(
			field("total_cost_usd", "number", "").must(),
			property{name: "token_type_totals", schema: row(), required: true},
			field("cache_read_pct", "number", "of all input tokens, in percent").must(),
			rowsOf("by_model", row(field("model", "string", "").must(), cost)),
			rowsOf("by_child", row(field("name", "string", "").must(), field("depth", "integer", "").must(), cost)),
			rowsOf("by_subagent", row(field("name", "string", "").must(), cost, field("requests", "integer", "").must())),
			property{name: "dropped", required: true, schema: results(
				field("parse_errors", "integer", "").must(), field("no_usage_block", "integer", "").must())},
		),
		closed: true,
		hints:  hints{readOnly: true, idempotent: true},
		handle: (*call).reportUsage,
	}
}

// rowsOf returns a property that is null or an array of objects.
func rowsOf(name string, row map[string]any) property {
	return property{name: name, required: true, schema: map[string]any{"type": []string{"null", "array"}, "items": row}}
}

func (c *call) reportUsage() (*sdk.CallToolResult, error) {
	job, dir := c.args.text("job_id"), c.opts.Mounts.host(c.args.text("output_dir"))
	if job == "" && dir == "" {
		return nil, errors.New("job_id or output_dir is required")
	}
	report, err := c.engine.Usage(c.ctx, job, dir)
	if err != nil {
		return nil, err
	}
	return answer(report.Text, report), nil
}
