// Package mcp is demesne's MCP server: the tools that agents call, over stdio or HTTP.
//
//	s := mcp.New(engine, mcp.Options{Version: v})
//	err := s.ServeStdio(ctx, os.Stdin, os.Stdout)
//
// One file is one tool: its arguments, its result and its handler. What a tool does is
// behind [backend.Engine]; this package parses, checks, waits, reports progress and words the
// answer. Names, parameters, leniency, texts and result fields are those of
// jbeshir/demesne, whose clients need not change:
//
//   - unknown arguments are ignored, numbers and booleans may come as strings, an
//     optional argument of the wrong type counts as absent ([args]), but for what is to be
//     mounted and for limits;
//   - an error of a tool is a result with isError, never a JSON-RPC error;
//   - the text form of a result is stable, for scripts that search it; models see the
//     structured content, which therefore carries everything.
//
// Two things the SDK's transport over stdio does otherwise: what is no message ends it, and is
// answered here ([frames]); at the end of its input it drops the calls in flight, which are
// answered first here ([draining]). Both ways of asking a person are there: while a call is under
// way, and, for newer clients, in its answer ([talk]).
//
// What it does not do: it decides nothing about isolation, and it trusts its client, not the model behind it.
// What a model may mount is bounded by [Mounts] and [credentials], what it may reach by Options.Domain and the person at
// the client, what it may use by [Ceilings]: the operator sets them. Whose sandboxes it finds is the runner's to say, by
// the door of the connection.
package mcp
