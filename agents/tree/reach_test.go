package tree

import (
	"strings"
	"testing"

	"demesne/agents"
	"demesne/mcp"
	"demesne/runner"
)

// TestReach checks which network a caller may use that has another one.
func TestReach(t *testing.T) {
	managers := reach{"package-managers", []string{"a.test:443"}}
	for name, c := range map[string]struct {
		own, want reach
		wrong     string
	}{
		"nothing":                   {},
		"nothing from everywhere":   {own: everywhere},
		"empty from none":           {own: reach{mode: "none"}},
		"none of empty":             {want: reach{mode: "none"}},
		"the same":                  {own: managers, want: managers},
		"less":                      {own: managers, want: reach{mode: "none"}},
		"a wider mode":              {want: reach{mode: "package-managers"}, wrong: `egress "package-managers" is not permitted: the agent that asks has "none"`},
		"everywhere from none":      {want: everywhere, wrong: `egress "open" is not permitted: the agent that asks has "none"`},
		"everywhere from managers":  {own: managers, want: everywhere, wrong: `egress "open" is not permitted: the agent that asks has "package-managers"`},
		"everywhere by a wide rule": {own: reach{domains: []string{"*", "0.0.0.0/0"}}, want: everywhere, wrong: `egress "open"`},
		"everywhere":                {own: everywhere, want: everywhere},
		"an unknown mode":           {own: everywhere, want: reach{mode: "wide"}, wrong: `egress "wide" is not permitted`},
		"of an unknown mode":        {own: reach{mode: "wide"}, want: reach{mode: "none"}, wrong: `egress "none" is not permitted`},
		"capital letters":           {own: reach{mode: "OPEN"}, want: everywhere, wrong: `egress "open"`},
		"a domain":                  {own: managers, want: reach{domains: []string{"a.test:443"}}},
		"another domain":            {own: managers, want: reach{domains: []string{"b.test"}}, wrong: `domain "b.test" is not permitted`},
		"a second domain":           {own: managers, want: reach{domains: []string{"a.test:443", "b.test"}}, wrong: `domain "b.test" is not permitted`},
		"another port":              {own: managers, want: reach{domains: []string{"a.test:22"}}, wrong: `domain "a.test:22" is not permitted`},
		"a domain of everywhere":    {own: everywhere, want: reach{domains: []string{"b.test:22"}}},
		"this machine's network":    {own: everywhere, want: reach{domains: []string{"10.0.0.0/8"}}, wrong: `domain "10.0.0.0/8" is not permitted`},
		"no rule":                   {own: everywhere, want: reach{domains: []string{"a b"}}, wrong: `domain "a b" is not permitted`},
	} {
		err := c.own.permits(c.want)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.HasPrefix(err.Error(), c.wrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// descent returns the last of agents of which each started the next, in a tree as t.
func descent(t *Tree, requests ...agents.Request) *node {
	var n *node
	for _, r := range requests {
		n = &node{tree: t, parent: n, req: r}
	}
	return n
}

// TestDescent checks what a descendant may start and use: research, and tools of the host.
func TestDescent(t *testing.T) {
	closed, managers, research := agents.Request{Egress: "none"}, agents.Request{Egress: "package-managers"}, agents.Request{Research: true}
	ask, _ := mcp.ParseResearch("ask")
	inputs := agents.Request{Inputs: []runner.Input{{Path: "/x", Name: "x"}}}
	allowed, off, private := &Tree{AllowResearch: true}, &Tree{AllowResearch: true, Research: mcp.ResearchOff}, &Tree{Private: true}
	for name, c := range map[string]struct {
		n                          *node
		research, tools, onlyNamed bool
	}{
		"closed":                       {n: descent(&Tree{}, closed), tools: true},
		"closed with inputs":           {n: descent(private, inputs), tools: true, onlyNamed: true},
		"child with inputs":            {n: descent(private, inputs, inputs), tools: true, onlyNamed: true},
		"package managers":             {n: descent(private, managers), tools: true, onlyNamed: true},
		"child of package managers":    {n: descent(&Tree{}, managers, closed), tools: true},
		"open":                         {n: descent(&Tree{}, research), research: true},
		"asked before":                 {n: descent(&Tree{Research: ask}, research), research: true},
		"closed child of open":         {n: descent(&Tree{}, research, closed)},
		"grandchild of open":           {n: descent(&Tree{}, research, closed, closed)},
		"open grandchild":              {n: descent(&Tree{}, research, closed, research), research: true},
		"allowed":                      {n: descent(allowed, closed), research: true, tools: true},
		"allowed child":                {n: descent(allowed, closed, managers), research: true, tools: true},
		"closed child of its research": {n: descent(allowed, closed, research, closed), research: true},
		"disabled":                     {n: descent(off, research)},
	} {
		err := c.n.mayResearch()
		some, named := c.n.mayUseTools()
		if (err == nil) != c.research || some != c.tools || named != c.onlyNamed {
			t.Errorf("%s: research %v, tools %t, only named %t", name, err, some, named)
		}
		if c.research {
			continue
		}
		if _, err := (children{c.n}).beginAgent(agents.Request{Research: true}); err == nil {
			t.Errorf("%s: its research begins", name)
		}
	}
}
