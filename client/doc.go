// Package client runs commands in sandboxes. It has the requests and answers of demesne's HTTP API under /v1, and a
// [Client] of it. The package is a module of its own: a program that imports it gets the standard library and this package.
//
//	c, err := client.New(client.Options{URL: "http://127.0.0.1:7480", Token: token})
//	r, err := c.Run(ctx, client.RunRequest{Command: client.Command{Command: "echo hello"}})
//	fmt.Print(r.Stdout.Text)
//
// There are two ways to get a Client. [New] speaks HTTP to demesne serve, over TCP or a unix socket. The New of package
// demesne/server/inprocess needs no server: it has the same API in this process. Both behave alike, because they have the
// same handlers.
//
// # Sandboxes
//
// Run makes a sandbox for one command. A persistent sandbox lives until it is removed or expires; its name or id is the
// argument of most methods. A sandbox has no network unless its request names one.
//
//	sb, err := c.Sandboxes().Create(ctx, client.CreateRequest{})
//	defer c.Sandboxes().Remove(ctx, sb.ID)
//	_, err = c.Files(sb.ID).Write(ctx, "in.txt", []byte("hello"))
//	r, err = c.Sandboxes().Exec(ctx, sb.ID, client.Command{Argv: []string{"wc", "in.txt"}})
//
// [Jobs] and [Agents] run in the background. [Outputs] are the files that commands and jobs leave in /out. [Egress] is what
// sandboxes may reach, [Images] what they are made of. [Client.Events] and [Audit] say what happens and happened.
// [Host] asks for commands of the server's machine.
//
// # Results and errors
//
// A command that ends with another exit code than 0 is a result, not an error: see [Result]. An answer of the server that
// is an error is an [*Error], and matches one of the variables ErrNotFound, ErrDenied, ErrInvalid, ErrConflict, ErrBusy and
// ErrTooLarge by errors.Is. Other errors come from the connection or the context. The package does not retry.
//
// The end of a context ends the request, and with it the command that the request runs. Commands of other requests, jobs
// and sandboxes live on.
//
// # Bounds
//
// An answer has at most 64 MiB, and an event of a stream 16 MiB. A result has the end of each stream: see [Output].
// [Files.Read] reads at most [ReadMost] bytes, and [Files.Download] has no bound. Texts and file names that come from a
// sandbox are untrusted.
//
// # Secrets
//
// A request names secrets, which the operator stored with demesne secret add. No value of a secret is ever sent or
// answered.
//
// The types are the API: package server/rest answers with them, and its OpenAPI document is made of them. The package
// links the standard library only, and has no global state.
package client
