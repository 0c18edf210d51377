package mcp

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/runner"
)

var askField = field("ask", "boolean", "Ask the user about each other host that is wanted.").also("The command waits meanwhile. Without client support (elicitation) such hosts are denied.")

const (
	// maxAsked is the number of questions that a person is asked at once. Further questions wait, and are answered
	// no when their time is over.
	maxAsked = 8
	// maxQuestion limits a question, in bytes. A longer question is not asked, because a person would not read all
	// of it.
	maxQuestion = 4 << 10
)

// asker returns a function that asks the person at the client about a name, or nil if the client cannot ask.
func (c *call) asker() func(runner.Question, []string) (allow, answered bool) {
	if !c.canAsk() {
		return nil
	}
	return func(q runner.Question, readable []string) (allow, answered bool) {
		text, ok := wording(q, readable)
		return ok && c.put(text), true
	}
}

// put asks the person at the client and reports whether the answer is yes.
func (c *call) put(text string) bool {
	ctx, cancel := context.WithTimeout(c.ctx, runner.AskTime)
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

// canAsk reports whether the client supports elicitation, so that it may ask a person.
func (c *call) canAsk() bool {
	p := c.req.ClientCapabilities()
	return p != nil && p.Elicitation != nil
}

// inputPaths returns the host paths that a sandbox of spec can read and therefore could send.
func inputPaths(spec runner.Spec) (paths []string) {
	for _, in := range spec.Inputs {
		paths = append(paths, in.Path)
	}
	return paths
}

// wording returns the question about a name that a command wants to reach.
func wording(q runner.Question, readable []string) (text string, ok bool) {
	what := q.Name
	if q.Port != 0 {
		what = fmt.Sprintf("%s:%d", q.Name, q.Port)
	}
	return framed(fmt.Sprintf("A command in a sandbox wants to reach %s, which no rule allows. Accept to allow it from now on.", quoted(what)), readable)
}

// framed appends to a question what the sandbox can read. ok is false if the result is too long for a person.
func framed(question string, inputs []string) (text string, ok bool) {
	if len(inputs) > 0 {
		question += fmt.Sprintf(" It can read %s.", strings.Join(quotedAll(inputs), ", "))
	}
	return question, len(question) <= maxQuestion
}

// quoted quotes text of a sandbox or a model for a question, on one line. The text cannot end the quotes or imitate
// them.
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
