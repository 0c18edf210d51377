// Package api defines the protocol between a caller and demesne-runner, over the socket on which package ipc carries
// messages. Bodies are the types of this package and of package runner. Descriptors travel by name.
//
//	caller ── hello + userns ──▶ runner     identifies the caller: see [FileUserNS]
//	       ◀── hello ───────────            or EOF if the runner is ending; the caller that started it need not wait
//	       ── create, open … ──▶            any call, many at a time; one reply each
//	       ◀── ask ─────────────            a name that no rule covers; answered by a call
//
// A command takes one call and one event:
//
//	caller ── exec ─────▶ runner     argv, stdio, a tag
//	       ◀──── reply ──            started, or the reason for the failure
//	       ◀──── ended ──            the tag, and the result
//
// For a one-shot sandbox, run replaces create and exec. Exec can also find the sandbox, in place of open. Signal and
// resize refer to the command by the number in the reply. The wait call returns the result of any command by that
// number, no matter which caller started it, and may be repeated.
//
// A caller that starts a runner first sends it a [Boot], as the diagram in package userns shows. This package defines
// only the messages: package client implements the caller's side, package engine the runner's.
package api
