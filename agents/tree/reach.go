package tree

import (
	"cmp"
	"fmt"
	"slices"

	"demesne/mcp"
	"demesne/proxy/policy"
	"demesne/runner"
)

// reach is the network of one caller in a tree: an egress mode, and rules beside it. The zero value reaches nothing.
type reach struct {
	mode    string
	domains []string
}

// everywhere is the reach of research, and the reach that a tool of the host may have, which can send its arguments
// anywhere.
var everywhere = reach{mode: runner.OpenEgress}

// permits returns why a caller that reaches own may not use what reaches want, or nil. It decides about commands,
// sandboxes, agents, research and tools of the host. It compares rules as text, which errs on the side of refusal.
func (own reach) permits(want reach) error {
	modes := runner.EgressModes() // from the narrowest to the widest
	if slices.Index(modes, want.modeOr()) > slices.Index(modes, own.modeOr()) || !slices.Contains(modes, want.modeOr()) {
		return fmt.Errorf("egress %q is not permitted: the agent that asks has %q", want.modeOr(), own.modeOr())
	}
	for _, d := range want.domains {
		if !slices.Contains(own.domains, d) && !(own.open() && public(d)) {
			return fmt.Errorf("domain %q is not permitted: the agent that asks cannot reach it", d)
		}
	}
	return nil
}

func (own reach) modeOr() string { return cmp.Or(own.mode, runner.NoEgress) }

func (own reach) open() bool { return own.mode == runner.OpenEgress }

// public reports whether the rule leads no further than the mode open.
func public(words string) bool {
	r, err := policy.ParseRule(words)
	return err == nil && r.BeyondOpen(nil) == ""
}

// reach returns what the agent itself reaches.
func (n *node) reach() reach {
	if n.req.Research {
		return everywhere
	}
	return reach{n.req.Egress, n.req.Domains}
}

// mayResearch returns why the agent may not start one that reaches everything, or nil.
func (n *node) mayResearch() error {
	switch {
	case n.tree.Research == mcp.ResearchOff:
		return mcp.ErrNoResearch
	case n.tree.AllowResearch:
		return nil
	}
	if err := n.reach().permits(everywhere); err != nil {
		return fmt.Errorf("%w. Only the user can allow research here (demesne agent run --allow-research)", err)
	}
	return nil
}

// offered returns the word for the server in the sandbox of the agent.
func (n *node) offered() mcp.Research {
	if n.mayResearch() != nil {
		return mcp.ResearchOff
	}
	return 0
}

// mayUseTools returns whether the agent may use tools of this machine, and whether only those that the user named.
// Such a tool reads the user's data. So neither an agent that reaches everything may use one, nor a descendant, whose
// output that agent reads. It may also send its arguments anywhere, even if it declares to change nothing.
func (n *node) mayUseTools() (some, onlyNamed bool) {
	for a := n; a != nil; a = a.parent {
		if a.reach().permits(everywhere) == nil {
			return false, false
		}
	}
	return true, n.tree.Private
}
