// Package diagnose turns the kernel's answer to something demesne tried into a
// reason and the line to type that lifts it.
//
//	f := diagnose.Read("/usr/libexec/demesne/demesne-runner")
//	why, fix := diagnose.Userns(err, f)
//
// The kernel says EPERM for a dozen reasons. Which one it was is told by [Facts],
// a handful of small files below /proc and /etc; reading them and judging them are
// apart, so that the judgement is pure and has a table for a test. Nothing here
// tries anything: package probe does.
//
// A fix is one line for a shell of the machine's owner. An ellipsis stands for the
// rest of the caller's own command. No fix means that there is none to type: a
// newer kernel, or another place to run.
//
// The package is light, so that demesne can use it when no runner could start.
package diagnose
