package agents

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"demesne/internal/lazy"
	"demesne/session"
)

// Price is what the tokens of a model cost, in US dollars a million. The figures are indicative: a subscription or a
// contract has others.
type Price struct {
	Model      string  `json:"model"` // an id without its date, or the family that is a word of the id: "gpt-5.5", "sonnet"
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	CacheWrite float64 `json:"cache_write"`
	CacheRead  float64 `json:"cache_read"`
}

// check reports what is wrong with a price of a user's file.
func (p Price) check() error {
	switch {
	case p.Model == "":
		return errors.New("prices: a price needs the name of its model")
	case min(p.Input, p.Output, p.CacheWrite, p.CacheRead) < 0 || max(p.Input, p.Output, p.CacheWrite, p.CacheRead) > 1e9:
		return fmt.Errorf("prices: model %q: not amounts in dollars", p.Model)
	}
	return nil
}

// filled returns p with the price of input for a missing price of the cache: the cache of a price that does not mention it
// must not be free.
func (p Price) filled() Price {
	if p.CacheWrite == 0 {
		p.CacheWrite = p.Input
	}
	if p.CacheRead == 0 {
		p.CacheRead = p.Input
	}
	return p
}

// searchPrice is the most that a provider charges for a search of the web, in US dollars: the highest of the known
// prices.
const searchPrice = 0.035

// prices is the table of the known models. Where a maker charges nothing extra to write its cache, CacheWrite is
// Input. Prices for long prompts, by what the makers published until November 2026: Anthropic has none above these rows
// (claude-haiku-4-5's covers the long prompts of claude-haiku-5-5), for OpenAI see [surcharge], and the rows of Google and
// Alibaba have the price of the longest prompts.
var prices = []Price{
	{"sonnet", 3, 15, 3.75, 0.30},
	{"opus", 5, 25, 6.25, 0.50},
	{"fable", 10, 50, 12.50, 1},
	{"haiku", 1, 5, 1.25, 0.10},
	{"claude-opus-4-1", 15, 75, 18.75, 1.50},
	{"claude-opus-4-0", 15, 75, 18.75, 1.50},
	{"claude-opus-4", 15, 75, 18.75, 1.50},
	{"claude-3-opus", 15, 75, 18.75, 1.50},
	{"gpt-6-astra", 10, 50, 12.50, 1},
	{"gpt-6-sol", 2, 10, 2.50, 0.20},
	{"gpt-6-luna", 0.10, 0.50, 0.125, 0.01},
	{"gpt-6.1-sol", 2, 10, 2.50, 0.10},
	{"gpt-6.1-terra", 10, 50, 12.50, 1}, // not published yet: as the dearest of gpt-6
	{"gpt-5.6-sol", 5, 30, 5, 0.50},
	{"gpt-5.6-terra", 2.5, 15, 2.5, 0.25},
	{"gpt-5.6-luna", 1, 6, 1, 0.10},
	{"gpt-5.5", 5, 30, 5, 0.50},
	{"gpt-5.4-mini", 0.75, 4.5, 0.75, 0.075},
	{"gemini-2.5-pro", 2.50, 15, 2.50, 0.25}, // the price of long prompts
	{"gemini-2.5-flash", 0.30, 2.50, 0.30, 0.03},
	{"gemini-2.5-flash-lite", 0.10, 0.40, 0.10, 0.01},
	{"gemini-3-pro-preview", 4, 18, 4, 0.40},
	{"gemini-3.1-pro-preview", 4, 18, 4, 0.40},
	{"gemini-3-flash-preview", 0.50, 3, 0.50, 0.05},
	{"gemini-3.1-flash-lite", 0.25, 1.50, 0.25, 0.025},
	{"gemini-3.1-flash-lite-preview", 0.25, 1.50, 0.25, 0.025},
	{"gemini-3.5-flash", 1.50, 9, 1.50, 0.15},
	{"gemini-3.5-flash-lite", 0.30, 2.50, 0.30, 0.03},
	{"qwen3-coder-plus", 6, 60, 6, 6}, // the price of the longest prompts; of the cache none is published
	{"qwen3-coder-flash", 1.60, 9.60, 1.60, 1.60},
}

// modelSuffix matches the part in which ids of one model differ: a date, "latest", a version of a cloud's catalog, a context
// size.
var modelSuffix = lazy.Regexp{Expr: `(?:[-@]20\d{2}-?\d{2}-?\d{2}|-latest|[-@]default|-v\d+(?::\d+)?|\[\w+\])$`}

// baseModel returns a model's id without its catalog and suffixes: "claude-sonnet-4-5" of
// "vertex/claude-sonnet-4-5@20250929".
func baseModel(id string) string {
	id = strings.ToLower(strings.TrimSpace(id))
	id = id[strings.LastIndexByte(id, '/')+1:]
	for {
		short := modelSuffix.Get().ReplaceAllString(id, "")
		if short == id {
			return id
		}
		id = short
	}
}

// priceOf returns the price of a model, zero if it is unknown. A row of extra precedes the table. A row for the whole id
// precedes one for a word of it.
func priceOf(model string, extra []Price) Price {
	if len(model) > nameKept {
		return Price{}
	}
	base := baseModel(model)
	words := strings.FieldsFunc(base, func(r rune) bool { return r == '-' || r == '.' || r == ':' || r == '_' })
	for _, rows := range [][]Price{extra, prices} {
		for _, p := range rows {
			if name := strings.ToLower(p.Model); name == base || name == strings.ToLower(model) {
				return p.filled()
			}
		}
		for _, p := range rows {
			if slices.Contains(words, strings.ToLower(p.Model)) {
				return p.filled()
			}
		}
	}
	return Price{}
}

// cost returns what t costs, in US dollars.
func (p Price) cost(t session.Tokens) float64 {
	return dollars((float64(t.Input)*p.Input + float64(t.Output)*p.Output + float64(t.CacheCreation)*p.CacheWrite + float64(t.CacheRead)*p.CacheRead) / 1e6)
}

// longPrompt is the number of input tokens, cached or not, beyond which OpenAI charges more for a whole request to a model
// of longModels: twice for its input, and half as much again for its output.
const longPrompt = 272_000

var longModels = []string{"gpt-5.5", "gpt-5.6-sol", "gpt-5.6-terra", "gpt-5.6-luna", "gpt-6-astra", "gpt-6-sol", "gpt-6-luna", "gpt-6.1-sol", "gpt-6.1-terra"}

// surcharge returns what one request costs beyond its price because its prompt is long. A row of extra has none.
func surcharge(model string, extra []Price, t session.Tokens) float64 {
	if t.Input+t.CacheCreation+t.CacheRead <= longPrompt || !slices.Contains(longModels, baseModel(model)) {
		return 0
	}
	p := priceOf(model, extra)
	if p != priceOf(model, nil) {
		return 0
	}
	p.Output /= 2
	return p.cost(t)
}

// dollars rounds away what the sums of binary fractions add.
func dollars(x float64) float64 { return math.Round(x*1e8) / 1e8 }

// maxSum bounds a sum: invented counts cannot make it overflow, and JSON carries it exactly.
const maxSum = 1 << 53

// plus returns the sum of t and b.
func plus(t, b session.Tokens) session.Tokens {
	return session.Tokens{
		Input: min(t.Input+b.Input, maxSum), Output: min(t.Output+b.Output, maxSum),
		CacheCreation: min(t.CacheCreation+b.CacheCreation, maxSum), CacheRead: min(t.CacheRead+b.CacheRead, maxSum),
	}
}
