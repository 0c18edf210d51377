// Package mcp implements demesne's MCP server. It offers tools to agents over stdio or HTTP.
//
//	s := mcp.New(b, mcp.Options{Version: v})
//	err := s.ServeStdio(ctx, os.Stdin, os.Stdout)
//
// Each tool has one file with its arguments, result and handler. A [backend.Engine] performs the operation. This
// package parses and checks arguments, reports progress and formats the answer. Names, parameters, leniency, texts
// and result fields match jbeshir/demesne, so its clients need not change:
//
//   - Unknown arguments are ignored. Numbers and booleans may be strings. An optional argument of the wrong type
//     counts as absent ([args]). Mounts and limits are exceptions.
//   - A tool error is a result with isError, never a JSON-RPC error.
//   - The text form of a result is stable, for scripts that search it. Models see the structured content, which
//     therefore contains everything.
//
// The stdio transport differs from the SDK's in three ways. An invalid message is answered with an error and does not
// end the connection ([frames]). At the end of the input, calls in flight are answered first, unless the client has left
// ([draining]). It stops reading from a client that reads no answers. Both ways to ask a person are supported: during a
// call, and for newer clients in its answer ([talk]). Over HTTP, clients of both eras are served ([Server.Handler]).
//
// The package does not decide about isolation. It trusts its client, but not the model behind the client. The
// operator limits the model: [Mounts] and [credentials] limit the mounts, [Ceilings] the resources. Options.Domain
// and the person at the client limit the egress. The runner decides which sandboxes a connection finds, by the socket
// that the connection uses.
package mcp
