// Package restapi assembles demesne's own API, and connects it to the server's other APIs.
package restapi

import (
	"log"
	"net/http"

	"demesne/internal/cmdline"
	"demesne/server"
	"demesne/server/apibackend"
	"demesne/server/apibackend/apijobs"
	"demesne/server/e2b"
	"demesne/server/operate"
	"demesne/server/rest"
	"demesne/server/serve/mcptools"
)

// Options are the parts of the server that the API uses.
type Options struct {
	Backends *apibackend.Spaces
	Tools    *mcptools.Tools
	E2B      *e2b.Spaces
	Operate  *operate.Operator
	Queue    *server.Queue
	Beside   *http.ServeMux // other routes of the server
	Log      *log.Logger
}

// New returns the API. The caller closes it.
func New(o Options) *rest.Server {
	b := &browsers{of: o.Backends}
	return rest.New(rest.Options{
		Of: o.Backends.For, Questions: o.Backends.Questions, Jobs: apijobs.Jobs{Of: o.Tools.For, Service: o.Backends.Of},
		Queue: o.Queue.State, Version: cmdline.Version, Log: o.Log, Host: o.Tools.Host, Stored: o.E2B.Stored, Beside: o.Beside,
		Browse: b.browse, Listed: o.Operate.Listed, Samples: o.Operate.Samples,
	})
}
