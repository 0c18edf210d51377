package mcp

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/mcp/work"
)

var askField = field("ask", "boolean", "Have the person at the client decide about names that nothing allows, while the command waits. "+
	"A client that cannot ask (elicitation) says no.").with("default", false)

// asker is who is asked about a name for this call: the person at the client, where the client
// can put a question to one; nil: nobody.
func (c *call) asker() func(name string, port uint16) bool {
	if !c.canAsk() {
		return nil
	}
	return func(name string, port uint16) bool {
		ctx, cancel := context.WithTimeout(c.ctx, work.AskTime)
		defer cancel()
		p := &sdk.ElicitParams{Message: wording(name, port, c.shown()), RequestedSchema: arguments()}
		if c.talk != nil {
			return c.talk.ask(ctx, p)
		}
		r, err := c.req.Session.Elicit(ctx, p)
		return err == nil && r.Action == "accept"
	}
}

// canAsk says whether there may be a person at the client.
func (c *call) canAsk() bool {
	p := c.req.ClientCapabilities()
	return p != nil && p.Elicitation != nil
}

// shown are the inputs of this call, which is what could leave.
func (c *call) shown() []string {
	files, _ := c.args.texts("files")
	dirs, _ := c.args.texts("directories")
	return append(files, dirs...)
}

// wording is what the person reads. A name is a sandbox's word, and so may be what an input is called: both come quoted.
func wording(name string, port uint16, inputs []string) string {
	text := fmt.Sprintf("A command in a sandbox wants to reach %q, which nothing allows. Accept, and it may from now on.", fmt.Sprintf("%s:%d", name, port))
	if port == 0 {
		text = strings.Replace(text, ":0\"", "\"", 1)
	}
	var quoted []string
	for _, path := range inputs {
		quoted = append(quoted, strconv.Quote(path))
	}
	if len(quoted) > 0 {
		text += fmt.Sprintf(" It can read %s.", strings.Join(quoted, ", "))
	}
	return text
}
