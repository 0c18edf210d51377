package serve

import (
	"context"

	"demesne/client"
	"demesne/internal/cmdline"
	"demesne/server/apibackend"
	"demesne/server/rest"
)

// addREST adds demesne's own API.
func (p *program) addREST(context.Context) error {
	api := rest.New(rest.Options{
		Of: p.backend.For, Questions: p.backend.Questions, Jobs: apibackend.Jobs{Of: p.toolsOf, Service: p.backend.Of}, Queue: p.queueState, Version: cmdline.Version, Log: p.log, Host: p.host, Stored: p.stored, Beside: p.mux.ServeMux, Listed: p.operate.Listed, Samples: p.samples,
	})
	p.mux.Handle("/v1/", p.access.Handler(api))
	// Neither the document nor its page has data of the server. Generators of clients send no token.
	p.mux.Handle("GET /v1/openapi.json", api)
	p.mux.Handle("GET /docs", api)
	p.mux.Handle("GET /docs/", api)
	p.closers = append(p.closers, api.Close)
	return nil
}

// samples returns what a sandbox used in the last minutes.
func (p *program) samples(id string) (all []client.UsageSample) {
	for _, s := range p.operate.Samples(id) {
		all = append(all, client.UsageSample(s))
	}
	return all
}

// stored returns what a namespace stores over E2B's API.
func (p *program) stored(namespace string) map[string]client.Stored {
	has, most := p.e2b.Stored(namespace)
	return map[string]client.Stored{
		"bytes": {Now: has.Bytes, Max: most.Bytes}, "files": {Now: has.Files, Max: most.Files}, "volumes": {Now: has.Volumes, Max: most.Volumes},
		"snapshots": {Now: has.Snapshots, Max: most.Snapshots}, "templates": {Now: has.Templates, Max: most.Templates},
	}
}

// toolsOf returns the tools of a namespace.
func (p *program) toolsOf(namespace string) (*apibackend.Tools, error) {
	f, err := p.tools.of(namespace)
	if err != nil {
		return nil, err
	}
	return &apibackend.Tools{Backend: f.Backend, Outputs: f.mcp}, nil
}
