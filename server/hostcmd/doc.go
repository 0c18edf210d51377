// Package hostcmd lets callers of the API, most of them models, run commands and use files of this machine, outside of
// any sandbox. It is off unless the operator names a policy. A list of the policy runs at once. Everything else waits until
// a person approves it, one request at a time.
//
//	p, err := hostcmd.ReadPolicy(path)
//	g, err := hostcmd.Open(hostcmd.Options{Policy: p, State: dir, Audit: log.Record})
//	o, err := g.Do(ctx, caller, hostcmd.Ask{Kind: hostcmd.Exec, Argv: []string{"docker", "restart", "web"}}, wait)
//	err = g.Store().Decide(hostcmd.Decision{ID: id, Digest: digest, Approve: true, By: "operator"})
//
// # Who is trusted
//
// The operator is: the owner of the policy, of the state directory and of the server's token. The caller is not, even if it
// sends the operator's token: MCP clients have tokens, and models steer them. No method that a caller reaches decides about a request. A
// sandbox may write files that an approved command reads, and may have been written by the caller.
//
// # What holds
//
//   - Arguments are data. A command is a list of words, which execve(2) gets. No shell parses it. A command in one text is
//     split at spaces and quotes; a text with an operator of a shell is refused. Patterns match words: see [Pattern].
//   - A person approves what runs. At its arrival a request is frozen ([Request]): words, resolved program with its inode
//     and times, working directory, environment, content. An approval has the digest of what the person saw. It counts for
//     the frozen request in the memory of the process that asked, and for no file on disk. A program or directory that
//     changed since is refused.
//   - Once. An approved request is executed once, by the process that asked. Its result is kept for its caller. A
//     request ends with its process: after a restart it is refused, never executed. Refusals are remembered, so that a
//     caller does not ask until the person gives in.
//   - Links are resolved when a request arrives, and none is followed afterwards (openat2 with RESOLVE_NO_SYMLINKS).
//     The program is executed by descriptor.
//   - A caller learns nothing about files that it may not use: a path that does not exist is asked for like any other.
//   - Bounds: words, requests that wait, their time, commands at once, output, files. Output and files are redacted before
//     they are cut.
//   - demesne's own files, the policy, /proc, /sys and /dev are never read or written. Credentials are only if the policy
//     lists their own place.
//   - Each request, decision and execution is in the audit log. A command whose entry cannot be written does not run.
//
// # What does not hold
//
// An approved command has all rights of the server's user. It reads files that nothing here freezes: make has its Makefile,
// git its configuration, docker its daemon. An approved command can write the state directory, and thereby approve
// others; that demesne approve needs a terminal is an obstacle, no boundary. A process that a command leaves behind lives on.
// The interpreter of a script opens it again by its path.
//
//	policy.go   the operator's file; pattern.go: words and patterns
//	freeze.go   from a caller's question to a frozen request; resolve.go: programs, directories and files
//	store.go    requests and decisions on disk, for demesne approve; describe.go: for a person to read
//	guard.go    the queue; run.go, files.go, stage.go: execution
package hostcmd
