package main

import (
	"context"

	"demesne/cmd/internal/apibackend"
	"demesne/cmd/internal/cli"
	"demesne/server/rest"
)

// addREST adds demesne's own API.
func (p *program) addREST(context.Context) error {
	api := rest.New(rest.Options{
		Backend: p.backend, Jobs: apibackend.Jobs{Of: p.toolsOf}, Queue: p.queueState, Version: cli.Version, Log: p.log, Host: p.host,
	})
	p.mux.Handle("/v1/", p.access.Handler(api))
	// The page has no data: it asks for the token, without which a browser cannot get the document.
	p.mux.Handle("GET /docs", api)
	p.mux.Handle("GET /docs/", api)
	p.closers = append(p.closers, api.Close)
	return nil
}

// toolsOf returns the tools of a namespace.
func (p *program) toolsOf(namespace string) (*apibackend.Tools, error) {
	f, err := p.tools.of(namespace)
	if err != nil {
		return nil, err
	}
	return &apibackend.Tools{Backend: f.Backend, Caller: f.caller}, nil
}
