package toolbackend

import (
	"demesne/mcp/toolbackend/background"
	"demesne/server"
	"demesne/server/hostcmd"
	"demesne/server/runs"
	"demesne/session"
	"demesne/session/operator"
)

// Options says for whom a Backend works. The zero value is for a program with one client, which has the rights of its user.
type Options struct {
	Session session.Options // its Getenv has the operator's settings
	// Policy decides what the callers may ask; nil: one of the settings.
	Policy *operator.Policy
	// Namespace is the callers'; empty: none. Callers with a namespace see only its sandboxes, jobs, outputs and
	// secrets.
	Namespace string
	// Queue bounds the commands that calls wait for; nil: they do not queue.
	Queue *server.Queue
	// Listed means that only listed directories can be mounted, and never the working directory. Namespace implies it.
	Listed bool
	// Runs are the runs of the tool set "runs"; nil: it is not offered.
	Runs *runs.Store
	// Host is the guard of host commands, with which the tool set host is offered. Nil: the settings decide, and they
	// offer it to no namespace.
	Host *hostcmd.Guard
}

// setting returns a setting of the operator.
func (o Options) setting(name string) string {
	if o.Namespace != "" && name == varPaths { // the operator listed them for the operator's own models
		return ""
	}
	return o.Session.Getenv(name)
}

// Backend is a [mcp.Service] over a session, with the settings that an MCP server has from the environment.
type Backend struct {
	*background.Jobs
	options Options
}
