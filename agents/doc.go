// Package agents knows the coding agents that demesne can run in a sandbox. Each is a row of one table, a [Provider]:
// its models, program, arguments, files, credentials and interfaces. A user adds rows in a file; see [Open].
//
// A [Catalog] joins the rows with what this host has: enabled providers, credentials and installed programs. It
// chooses an [Agent] for a model. The Agent makes a [Launch], which is data: arguments, environment, files, mounts and
// routes. The caller makes the sandbox and runs the command.
//
// The package never puts a credential into a Launch, except into the Header of a route, which only the proxy outside
// the sandbox reads. The program gets a token that is worth nothing elsewhere. The package opens no network
// connection: the caller passes a function that renews OAuth tokens over HTTP.
//
// No other package knows the name of a vendor.
package agents
