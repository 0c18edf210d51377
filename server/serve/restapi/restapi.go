// Package restapi puts demesne's own API together, with what the other APIs of the server know.
package restapi

import (
	"context"
	"log"
	"net/http"

	"demesne/client"
	"demesne/internal/cmdline"
	"demesne/server"
	"demesne/server/apibackend"
	"demesne/server/apibackend/apijobs"
	"demesne/server/e2b"
	"demesne/server/operate"
	"demesne/server/rest"
	"demesne/server/serve/mcptools"
)

// Options are what the API needs of the server.
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
	return rest.New(rest.Options{
		Of: o.Backends.For, Questions: o.Backends.Questions, Jobs: apijobs.Jobs{Of: o.Tools.For, Service: o.Backends.Of},
		Queue:   func(ctx context.Context) client.Queue { return client.Queue(o.Queue.State(server.CallerOf(ctx))) },
		Version: cmdline.Version, Log: o.Log, Host: o.Tools.Host, Stored: o.stored, Beside: o.Beside, Listed: o.Operate.Listed, Samples: o.samples,
	})
}

// samples returns what a sandbox used in the last minutes.
func (o Options) samples(id string) (all []client.UsageSample) {
	for _, s := range o.Operate.Samples(id) {
		all = append(all, client.UsageSample(s))
	}
	return all
}

// stored returns what a namespace stores over E2B's API.
func (o Options) stored(namespace string) map[string]client.Stored {
	has, most := o.E2B.Stored(namespace)
	return map[string]client.Stored{
		"bytes": {Now: has.Bytes, Max: most.Bytes}, "files": {Now: has.Files, Max: most.Files}, "volumes": {Now: has.Volumes, Max: most.Volumes},
		"snapshots": {Now: has.Snapshots, Max: most.Snapshots}, "templates": {Now: has.Templates, Max: most.Templates},
	}
}
