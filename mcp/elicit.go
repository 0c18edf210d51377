package mcp

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/mcp/backend"
	"demesne/runner"
)

var askField = field("ask", "boolean", "Have the person at the client decide about names that nothing allows, while the command waits. "+
	"A client that cannot ask (elicitation) says no.").with("default", false)

const (
	// askedMost is how many questions a person has at once; others wait for their turn, and are refused when
	// their time is over.
	askedMost = 8
	// questionMost bounds a question, in bytes: a person reads all of it, or is not asked.
	questionMost = 4 << 10
)

// asker asks the person at the client about names, where the client can put a question to one; otherwise it is nil.
func (c *call) asker() func(backend.Question) bool {
	if !c.canAsk() {
		return nil
	}
	return func(q backend.Question) bool {
		text, ok := wording(q)
		return ok && c.put(text)
	}
}

// put puts a question to the person at the client, and says whether the answer is yes.
func (c *call) put(text string) bool {
	ctx, cancel := context.WithTimeout(c.ctx, backend.AskTime)
	defer cancel()
	select {
	case c.asking <- struct{}{}:
		defer func() { <-c.asking }()
	case <-ctx.Done():
		return false
	}
	p := &sdk.ElicitParams{Message: text, RequestedSchema: arguments()}
	if c.talk != nil {
		return c.talk.ask(ctx, p)
	}
	r, err := c.req.Session.Elicit(ctx, p)
	return err == nil && r.Action == "accept"
}

// canAsk says whether there may be a person at the client.
func (c *call) canAsk() bool {
	p := c.req.ClientCapabilities()
	return p != nil && p.Elicitation != nil
}

// inputPaths are the files of the host that a sandbox of spec has: what could leave.
func inputPaths(spec runner.Spec) (paths []string) {
	for _, in := range spec.Inputs {
		paths = append(paths, in.Path)
	}
	return paths
}

// wording is what the person reads about a name that a command wants to reach.
func wording(q backend.Question) (text string, ok bool) {
	what := q.Name
	if q.Port != 0 {
		what = fmt.Sprintf("%s:%d", q.Name, q.Port)
	}
	return framed(fmt.Sprintf("A command in a sandbox wants to reach %s, which nothing allows. Accept, and it may from now on.", quoted(what)), q.Inputs)
}

// framed adds to a question what the sandbox can read. It is not ok if that is more than a person would read.
func framed(question string, inputs []string) (text string, ok bool) {
	if len(inputs) > 0 {
		question += fmt.Sprintf(" It can read %s.", strings.Join(quotedAll(inputs), ", "))
	}
	return question, len(question) <= questionMost
}

// quoted is a text of a sandbox's or a model's in a question: in quotes that nothing in it ends or imitates, on one line.
func quoted(s string) string {
	var b strings.Builder
	for _, r := range strconv.Quote(s) {
		if r > unicode.MaxASCII && unicode.Is(unicode.Quotation_Mark, r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func quotedAll(list []string) (out []string) {
	for _, s := range list {
		out = append(out, quoted(s))
	}
	return out
}
