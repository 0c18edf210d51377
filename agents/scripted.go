package agents

// scriptToken is the variable of a scripted agent's credential, which is worth nothing and has no server.
const scriptToken = "SCRIPT_TOKEN"

// scripted is the row of an agent that follows a script. It asks no model: the host of its route does not exist (RFC 6761).
var scripted = Provider{
	Name: "scripted", Command: "sh", Models: []string{"scripted"}, Format: "text", Context: "AGENTS.md",
	Arguments:   Arguments{Headless: []string{"-c", "{script}", "sh", "{prompt}"}},
	API:         API{Port: ownPort, Usage: "chat", Allow: []string{"POST /chat/completions"}},
	Credentials: []Credential{{Env: scriptToken, Base: "https://model.invalid", Header: "Authorization", Scheme: "Bearer"}},
	Prices:      []Price{{Model: "scripted"}},
}

// Scripted returns an agent that executes shell text in place of a coding agent's program. $1 is the prompt. It needs no
// credential, and shows what a run is like: its inputs, its outputs, its bounds and what remains.
func (c *Catalog) Scripted(script string) (*Agent, error) {
	own, env := *c, c.o.Env
	own.o.Env = func(name string) string {
		if name == scriptToken {
			return "none"
		}
		return env(name)
	}
	a, err := own.agent(scripted, "", scripted.Models[0], "")
	if err != nil {
		return nil, err
	}
	a.script = script
	if !a.program.inImage {
		a.program = program{argv: []string{"/bin/sh"}} // by this name: behind the link may be busybox, which goes by its name
	}
	return a, nil
}
