// Package diagnose turns a kernel error into a reason and a command that fixes it.
//
//	f := diagnose.Read("/usr/libexec/demesne/demesne-runner")
//	why, fix := diagnose.Userns(err, f)
//
// The kernel returns EPERM for a dozen reasons. [Facts] tell them apart; they come from a few small files below
// /proc and /etc. Reading the facts and judging them are separate, so the judgement is pure and testable with a
// table. This package does not test the machine; package doctor does.
//
// A fix is one shell line for the owner of the machine. An ellipsis stands for the rest of the caller's own
// command. An empty fix means that no command helps: it takes a newer kernel or another machine.
//
// The package is small, so that demesne can use it when no runner could start.
//
// It is apart from package doctor because demesne links it (package client), and must not link netns.
package diagnose
