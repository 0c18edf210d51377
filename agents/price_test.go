package agents

import (
	"testing"

	"demesne/session"
)

func TestPriceOf(t *testing.T) {
	extra := []Price{{Model: "my-model", Input: 7}, {Model: "claude-opus-4-1", Input: 15}, {Model: "glm", Input: 2}}
	for model, input := range map[string]float64{
		"sonnet": 3, "claude-sonnet-4-5-20250929": 3, "claude-sonnet-5": 3, "claude-3-5-sonnet-latest": 3, "claude-sonnet-4-5[1m]": 3,
		"anthropic/claude-sonnet-4.5": 3, "claude-sonnet-4-5@20250929": 3, "us.anthropic.claude-sonnet-4-20250514-v1:0": 3, "Claude-Sonnet-5": 3,
		"opus": 5, "claude-opus-4-5-20251101": 5, "fable": 10, "claude-fable-5": 10, "haiku": 1, "claude-haiku-4-5": 1,
		"gpt-5.6-sol": 5, "gpt-5.6-terra-2026-08-01": 2.5, "gpt-5.6-luna": 1, "gpt-5.5": 5, "openai/gpt-5.4-mini": 0.75, "gpt-5.5-2026-04-23": 5,
		"gpt-5.4": 0, "gpt-5.5-pro": 0, "gemini-2.5-pro": 2.5, "gemini-2.5-pro-exp": 0, "claude-opus-4-20250514": 15, "unsonneted": 0, "": 0, "-": 0,
		"my-model": 7, "claude-opus-4-1-20250805": 15, "glm-5-air": 2,
	} {
		if got := priceOf(model, extra).Input; got != input {
			t.Errorf("priceOf(%q).Input = %v, want %v", model, got, input)
		}
	}
	if got := priceOf("sonnet", []Price{{Model: "sonnet", Input: 4}}).Input; got != 4 {
		t.Errorf("a row of the user does not precede the table: %v", got)
	}
}

// TestCost has the figures of a million tokens of each kind, and the cost that claude itself stated for its run.
func TestCost(t *testing.T) {
	const m = 1_000_000
	for _, c := range []struct {
		model string
		t     session.Tokens
		want  float64
	}{
		{"sonnet", session.Tokens{Input: m, Output: m, CacheCreation: m, CacheRead: m}, 22.05},
		{"opus", session.Tokens{Input: m, Output: m, CacheCreation: m, CacheRead: m}, 36.75},
		{"fable", session.Tokens{Input: m, Output: m, CacheCreation: m, CacheRead: m}, 73.5},
		{"haiku", session.Tokens{Input: m, Output: m, CacheCreation: m, CacheRead: m}, 7.35},
		{"gpt-5.6-sol", session.Tokens{Input: m, Output: m, CacheRead: m}, 35.5},
		{"gpt-5.6-terra", session.Tokens{Input: m, Output: m, CacheRead: m}, 17.75},
		{"gpt-5.6-luna", session.Tokens{Input: m, Output: m, CacheRead: m}, 7.1},
		{"gpt-5.5", session.Tokens{Input: m, Output: m, CacheRead: m}, 35.5},
		{"gpt-5.4-mini", session.Tokens{Input: m, Output: m, CacheRead: m}, 5.325},
		{"claude-sonnet-5", session.Tokens{Input: 200, Output: 100, CacheCreation: 40, CacheRead: 60}, 0.002268},
		{"claude-sonnet-5", session.Tokens{Input: 500, Output: 250, CacheCreation: 100, CacheRead: 150}, 0.00567},
		{"unknown", session.Tokens{Input: m}, 0},
	} {
		if got := priceOf(c.model, nil).cost(c.t); got != c.want {
			t.Errorf("%s, %+v: %v, want %v", c.model, c.t, got, c.want)
		}
	}
}

func TestPlusIsBounded(t *testing.T) {
	big := session.Tokens{Input: mostSum, Output: mostSum, CacheCreation: mostSum, CacheRead: mostSum}
	if got := plus(big, big); got != big {
		t.Errorf("%+v", got)
	}
}

// TestModelsHavePrices checks that each model of a built-in row has a price, those that the program asks on its own
// included: a bound of the cost refuses all others.
func TestModelsHavePrices(t *testing.T) {
	for _, p := range table() {
		for _, m := range append(p.Models, p.Side...) {
			inner, _ := p.owns(m)
			if inner == "" {
				inner = m
			}
			if price := priceOf(inner, nil); min(price.Input, price.Output, price.CacheRead, price.CacheWrite) <= 0 {
				t.Errorf("%s: the model %q has the price %+v", p.Name, inner, price)
			}
		}
	}
	if got := priceOf("m", []Price{{Model: "m", Input: 3, Output: 4}}); got.CacheRead != 3 || got.CacheWrite != 3 {
		t.Errorf("a price without a cache: %+v", got)
	}
	for _, p := range []Price{{Input: 1}, {Model: "m", Input: -1}, {Model: "m", CacheRead: -0.1}} {
		if p.check() == nil {
			t.Errorf("%+v is accepted", p)
		}
	}
}
