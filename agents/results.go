package agents

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"demesne/session"
)

const resultsName = "results.json"

// Results is results.json, which describes the end of one agent.
type Results struct {
	JobID    string                    `json:"job_id"`
	Tool     string                    `json:"tool"`           // see Request.Tool
	Name     string                    `json:"name,omitempty"` // of a child
	Depth    int                       `json:"depth"`          // 0: the first agent
	ExitCode int                       `json:"exit_code"`
	Reason   string                    `json:"reason,omitempty"` // of an end other than the program's own
	Own      float64                   `json:"own_usage_usd"`
	Total    float64                   `json:"total_usage_usd"` // with the children
	Children []Results                 `json:"children,omitempty"`
	PerModel map[string]session.Tokens `json:"per_model_tokens,omitempty"` // with the children
}

// Cost returns the costs in the form that the tools report.
func (r *Results) Cost() session.Cost {
	return session.Cost{Own: r.Own, Total: r.Total, PerModel: r.PerModel, Summary: summaryOf(r.PerModel)}
}

// summaryOf returns the tokens of each model in one line; "" if models is empty.
func summaryOf(models map[string]session.Tokens) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(models)) {
		t := models[name]
		parts = append(parts, fmt.Sprintf("%s: input=%d output=%d cache_creation=%d cache_read=%d", name, t.Input, t.Output, t.CacheCreation, t.CacheRead))
	}
	return strings.Join(parts, "; ")
}

// Sum sets Own, Total and PerModel to what the agent itself used, by m, plus what its Children used in total.
func (r *Results) Sum(m *Meter) {
	r.Own, r.PerModel = m.Cost(), m.PerModel()
	r.Total = r.Own
	for _, c := range r.Children {
		r.Total = dollars(r.Total + c.Total)
		for model, t := range c.PerModel {
			r.PerModel[model] = plus(r.PerModel[model], t)
		}
	}
}

// Write replaces results.json in dir, with mode 0600.
func (r *Results) Write(dir *os.Root) error {
	return replaceFile(dir, resultsName, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(r)
	})
}
