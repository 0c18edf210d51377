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

// TestLongPrompts checks that a request whose prompt is long costs what its maker charges for it, also before it is
// forwarded, that several short ones do not, and that a user's own price holds.
func TestLongPrompts(t *testing.T) {
	long := session.Tokens{Input: 100_000, Output: 10_000, CacheRead: 172_001}
	for _, c := range []struct {
		model string
		t     session.Tokens
		want  float64
	}{
		{"openai/gpt-5.5-2026-04-23", long, 2*(0.5+0.0860005) + 1.5*0.3},
		{"gpt-5.5", session.Tokens{Input: 100_000, Output: 10_000, CacheRead: 172_000}, 0.5 + 0.086 + 0.3},
		{"gpt-6.1-sol", long, 2*(0.2+0.0172001) + 1.5*0.1},
		{"gpt-5.4-mini", long, 0.075 + 0.0129000750 + 0.045},
		{"claude-fable-5", long, 1 + 0.172001 + 0.5},
	} {
		m := NewMeter("responses")
		m.Add(request("a", c.model, c.t))
		if got := m.Cost(); got != dollars(c.want) || got != m.file().PerModel[c.model].Cost {
			t.Errorf("%s %+v: %v, want %v", c.model, c.t, got, c.want)
		}
	}
	m := NewMeter("responses")
	for range 10 {
		m.Add(request("a", "gpt-5.5", session.Tokens{Input: 100_000}))
	}
	if got := m.Cost(); got != 5 {
		t.Errorf("ten short requests: %v", got)
	}
	if short, _ := m.Estimate("gpt-5.5", 500_000, 1); short != 1.25003 {
		t.Errorf("estimate of a short request: %v", short)
	}
	if long, _ := m.Estimate("gpt-5.5", 600_000, 1); long != 3.000045 {
		t.Errorf("estimate of a long request: %v", long)
	}
	m = NewMeter("responses", Price{Model: "gpt-5.5", Input: 1, Output: 1, CacheRead: 1})
	if m.Add(request("a", "gpt-5.5", session.Tokens{Input: 500_000})); m.Cost() != 0.5 {
		t.Errorf("a user's price: %v", m.Cost())
	}
	for _, name := range longModels {
		if priceOf(name, nil) == (Price{}) {
			t.Errorf("%s has no price", name)
		}
	}
}

func TestPlusIsBounded(t *testing.T) {
	big := session.Tokens{Input: maxSum, Output: maxSum, CacheCreation: maxSum, CacheRead: maxSum}
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
