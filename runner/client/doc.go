// Package client is how a program runs commands in sandboxes:
//
//	c, err := client.Connect(ctx, client.Options{})      // finds or starts demesne-runner
//	s, err := c.Create(ctx, runner.Spec{Out: dir})       // a sandbox
//	p, err := s.Exec(ctx, runner.Command{Argv: argv})    // a command in it
//	r, err := p.Wait(ctx)                                // its result
//
// It is light, and makes no sandbox itself: that is demesne-runner, package engine, at the other end of a unix
// socket. What it does do is what only the caller can: write id maps, open the files to be shown to a sandbox, and, as
// real root, prepare control groups and id-mapped mounts.
//
//	client.go   calls; process.go  a command; kept.go, copy.go, files.go … those of one kind
//	launch.go   finds the runner in the run directory (rundir.go), or starts it; idmap.go  and maps its ids
//	greet.go    gives up on a runner that was stopped; siblings.go  finds the one that has a sandbox
//	sources.go  opens what is shown to a sandbox; publish.go  and what it is reached by
//	enter.go    a program of ours in a user namespace like the runner's
//
// A runner that dies takes the connection along: calls then fail with ipc.CodeGone, and a command's result is Lost.
package client
