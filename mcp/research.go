package mcp

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"demesne/agents"
)

// VarResearch names the variable with the operator's word about agents that reach the whole network.
const VarResearch = "DEMESNE_RESEARCH"

// Research says who may start such agents. What their texts contain can go anywhere.
type Research int

// The words of an operator.
const (
	researchOn  Research = iota // any caller
	researchAsk                 // the person at the client accepts each one
	ResearchOff                 // no caller
)

// ParseResearch parses the value of [VarResearch]. Empty is on.
func ParseResearch(word string) (Research, error) {
	if word == "ask" {
		return researchAsk, nil
	}
	on, err := strconv.ParseBool(word)
	switch {
	case word == "" || err == nil && on:
		return researchOn, nil
	case err == nil:
		return ResearchOff, nil
	}
	return ResearchOff, fmt.Errorf("%s %q: not true, ask or false", VarResearch, word)
}

// ErrNoResearch is the error of a caller that may not start research.
var ErrNoResearch = errors.New("research agents are disabled on this machine (" + VarResearch + ")")

// Unasked returns why a caller may not start research that no person can accept, or nil.
func (r Research) Unasked() error {
	switch r {
	case researchOn:
		return nil
	case researchAsk:
		return fmt.Errorf("%w: a person must accept each one, and no person can be asked here", ErrNoResearch)
	}
	return ErrNoResearch
}

// RefuseOpen returns the error of a caller that wants another sandbox with the whole network.
func (r Research) RefuseOpen() error {
	if r == ResearchOff {
		return errors.New("egress 'open' is not permitted")
	}
	return errors.New("egress 'open' is not permitted; use sandbox_research for unrestricted egress")
}

// mayResearch returns why a call may not start that agent, or nil. It may ask the person at the client.
func (c *call) mayResearch(r agents.Request) error {
	switch {
	case c.opts.Research == researchOn:
		return nil
	case c.opts.Research == ResearchOff:
		return ErrNoResearch
	case !c.canAsk():
		return fmt.Errorf("sandbox_research: a person must accept it (%s), and this client cannot ask one (elicitation)", VarResearch)
	}
	text, ok := framed(researchQuestion(r), nil)
	if !ok {
		return fmt.Errorf("sandbox_research: its texts are too long to show to a person, who must accept them (%s)", VarResearch)
	}
	if !c.put(text) {
		return errors.New("sandbox_research: the person at the client did not allow it")
	}
	return nil
}

// researchQuestion shows all that the model tells the agent.
func researchQuestion(r agents.Request) string {
	text := "A model wants to start an agent that reaches the whole network. The agent could send all of the following to anyone. Accept to allow it."
	for _, part := range []struct{ name, text string }{
		{"prompt", r.Prompt}, {"preamble", r.Preamble}, {"output_path", r.OutputPath}, {"output_format", r.OutputFormat},
		{"success_criteria", strings.Join(r.SuccessCriteria, "\n")}, {"name", r.Name},
	} {
		if part.text != "" {
			text += " " + part.name + ": " + quoted(part.text)
		}
	}
	return text
}
