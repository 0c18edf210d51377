// Package protocol is what a caller and demesne-runner say to each other, over the socket that package wire
// carries messages on. Bodies are the types here and those of package runner; descriptors travel by name.
//
//	caller ── hello + userns ──▶ runner     who it is: see [FileUserNS]
//	       ◀── hello ───────────            or EOF: it is on its way out; who has started it need not wait
//	       ── create, open … ──▶            any call, many at a time; one reply each
//	       ◀── ask ─────────────            a name that no rule speaks of; answered by a call
//
// A command is one call and one event:
//
//	caller ── exec ─────▶ runner     argv, stdio, a tag
//	       ◀──── reply ──            it was started, or why not
//	       ◀──── ended ──            the tag, and the result
//
// or, for a sandbox that is made for it, run in the place of create and exec. Exec can be the call that finds the
// sandbox, in the place of open. Signal and
// resize go by the number in the reply. The call wait asks for the result of any command
// by that number, whoever started it, again and again.
//
// A runner that is being started is told of itself first: [Boot], as package userns draws it. It is words only; package
// client is the caller's half, package engine the runner's.
package api
