// Package client runs commands in sandboxes:
//
//	c, err := client.Connect(ctx, client.Options{})      // finds or starts demesne-runner
//	s, err := c.Create(ctx, runner.Spec{Out: dir})       // a sandbox
//	p, err := s.Exec(ctx, runner.Command{Argv: argv})    // a command in it
//	r, err := p.Wait(ctx)                                // its result
//
// The package is light. demesne-runner (package engine), at the other end of a unix socket, makes the sandboxes. The package
// does what only the caller can do. It writes id maps and opens the files to be mounted in a sandbox. As real root it also
// prepares control groups and id-mapped mounts.
//
//	client.go   calls; process.go, persistent.go, copy.go, files.go … the calls of one kind
//	launch.go   finds the runner in the run directory (rundir.go), or starts it; idmap.go maps its ids
//	greet.go    gives up on a stopped runner; siblings.go finds the runner that has a sandbox
//	sources.go  opens the files for a sandbox; publish.go opens its listeners
//	enter.go    starts a program in a user namespace like the runner's
//
// When a runner dies, its connection ends. Calls then fail with ipc.CodeGone, and a command's result is Lost.
package client
