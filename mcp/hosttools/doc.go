// Package hosttools gives an agent in a sandbox chosen tools of the MCP servers that its user configured on this
// machine.
//
//	servers, warnings := hosttools.Read(hosttools.Config{Path: path, Format: hosttools.TOML})
//	allowed, err := hosttools.ReadAllowlist(path)
//	set := hosttools.Open(servers, allowed, hosttools.Options{Workspace: dir})
//	defer set.Close()
//	http.Serve(listener, set)   // /NAME/mcp for each server; listener is one of the sandbox's own loopback
//
// A server runs outside of the sandbox with its user's rights, as it does for the user's own client. So a person decides
// what an agent may call: the allowlist names each server and its tools, and what it does not name is neither listed
// nor called. Resources, prompts and completions need permission of their own.
//
// A server starts with the first request for it, and stops after it was idle for a while. One that cannot start fails
// its own requests and no others.
//
// Files that a tool generates on this machine can be delivered into the sandbox: see [Rule].
package hosttools
