package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/mcp/install"
	"demesne/mcp/toolbackend"
)

// calling is demesne mcp call: one call of a tool, for a shell. Its client cannot ask a person.
type calling struct {
	tools string
	json  bool
}

func (o *calling) command() *cmdline.Command {
	tools := install.ServerFlags(&install.ServerOptions{}).Long("tools")
	tools.Set = cmdline.Text(&o.tools)
	return &cmdline.Command{
		Program: "demesne mcp call", Usage: []string{"[--tools SETS] [--json] TOOL [NAME=TEXT | NAME:=JSON]…"}, Summary: "call a tool of the MCP server",
		About: "See demesne mcp --help.",
		Flags: cmdline.Flags{*tools, {Group: tools.Group, Long: "json", Set: cmdline.On(&o.json), Help: "print the whole result, with pictures, as JSON"}},
	}
}

// parse returns the function that makes the call.
func (o *calling) parse(ctx context.Context, line *cmdline.Command, words []string, out io.Writer) (func() error, error) {
	rest, err := line.Parse(words)
	if err != nil {
		return nil, err
	}
	if len(rest) == 0 {
		return nil, text.Hinted(errors.New("call: needs a tool"), "demesne mcp call sandbox_script command='ls -l /'")
	}
	args, err := arguments(rest[1:])
	return func() error { return o.run(ctx, rest[0], args, out) }, err
}

// run calls a tool, and prints its text. A failure of the tool is the error.
func (o *calling) run(ctx context.Context, name string, args map[string]any, out io.Writer) error {
	f, err := toolbackend.Open(toolbackend.Options{})
	if err != nil {
		return err
	}
	defer f.Close()
	s, done, err := f.Server(ctx, o.tools, os.Stderr, "demesne-mcp: ")
	if err != nil {
		return err
	}
	defer done()
	in, requests := io.Pipe()
	answers, replies := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.ServeStdio(ctx, in, replies) }()
	defer func() { <-served }()
	client := sdk.NewClient(&sdk.Implementation{Name: "demesne", Version: cmdline.Version}, nil)
	session, err := client.Connect(ctx, &sdk.IOTransport{Reader: answers, Writer: requests}, nil)
	if err != nil {
		requests.Close()
		return fmt.Errorf("call: %w", err)
	}
	defer session.Close()
	known := false
	for t, err := range session.Tools(ctx, nil) {
		if err != nil {
			return fmt.Errorf("list tools: %w", err)
		}
		known = known || t.Name == name
	}
	if !known {
		return text.Hinted(fmt.Errorf("call: no tool %q", text.SafeLine(name)), "--tools adds sets of tools: see demesne mcp --help")
	}
	r, err := session.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		return fmt.Errorf("call: %w", err)
	}
	return o.print(r, out)
}

// arguments reads NAME=TEXT, a text, and NAME:=JSON, any other value.
func arguments(words []string) (map[string]any, error) {
	args := map[string]any{}
	for _, word := range words {
		name, value, ok := strings.Cut(word, "=")
		name, parsed := strings.CutSuffix(name, ":")
		if !ok || name == "" {
			return nil, text.Hinted(fmt.Errorf("argument %q: not NAME=TEXT or NAME:=JSON", word), "such as command='ls -l' or background:=true")
		}
		args[name] = value
		if parsed {
			if !json.Valid([]byte(value)) {
				return nil, fmt.Errorf("argument %q: not JSON: %q", name, value)
			}
			args[name] = json.RawMessage(value)
		}
	}
	return args, nil
}

func (o *calling) print(r *sdk.CallToolResult, out io.Writer) error {
	if o.json {
		b, err := json.Marshal(r)
		if err == nil {
			_, err = fmt.Fprintf(out, "%s\n", text.SafeJSON(string(b)))
		}
		if r.IsError && err == nil {
			err = errors.New("the tool failed")
		}
		return err
	}
	var said []string
	for _, c := range r.Content {
		switch c := c.(type) {
		case *sdk.TextContent:
			said = append(said, strings.TrimSuffix(c.Text, "\n"))
		case *sdk.ImageContent:
			said = append(said, fmt.Sprintf("[%s, %d bytes: --json prints it]", c.MIMEType, len(c.Data)))
		}
	}
	all := strings.Join(said, "\n")
	if r.IsError {
		return errors.New(all)
	}
	_, err := fmt.Fprintln(out, strings.Map(shown, all))
	return err
}

// shown replaces what could control a terminal: pages and sandboxes wrote the text.
func shown(r rune) rune {
	if r == '\n' || r == '\t' || unicode.IsPrint(r) {
		return r
	}
	return '?'
}
