// Package mcp is demesne's MCP server: the tools that agents call, over stdio or HTTP.
//
//	s := mcp.New(engine, mcp.Options{Version: v})
//	err := s.ServeStdio(ctx, os.Stdin, os.Stdout)
//
// One file is one tool: its arguments, its result and its handler. What a tool does is
// behind [work.Engine]; this package parses, checks, waits, reports progress and words the
// answer. Names, parameters, leniency, texts and result fields are those of
// jbeshir/demesne, whose clients need not change:
//
//   - unknown arguments are ignored, numbers and booleans may come as strings, an
//     optional argument of the wrong type counts as absent ([args]);
//   - an error of a tool is a result with isError, never a JSON-RPC error;
//   - the text form of a result is stable, for scripts that search it; models see the
//     structured content, which therefore carries everything.
//
// The transport is the SDK's but for one thing: at the end of its input the SDK drops
// the calls in flight, and this server answers them first ([draining]).
//
// What it does not do: it decides nothing about isolation, and it trusts its client.
// What a model may mount is bounded by [Mounts], which the operator sets.
package mcp
