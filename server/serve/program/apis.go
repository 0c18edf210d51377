package program

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"demesne/internal/cmdline"
	"demesne/runner"
	"demesne/server/apibackend"
	"demesne/server/e2b"
	"demesne/server/e2b/secretvault"
	"demesne/server/hostcmd/hostaccess"
	"demesne/server/operate"
	"demesne/server/page"
	"demesne/server/serve/mcptools"
	"demesne/server/serve/restapi"
	"demesne/server/serve/settings"
	"demesne/session/events"
)

// openBackends makes what serves the callers of each namespace.
func (p *program) openBackends() error {
	p.queue = settings.Queue(p.options, p.operate.Unrecorded, func(ctx context.Context, ahead int, refused bool) {
		p.operate.Observe(ctx, events.Event{Type: events.QueueBackpressure, Detail: map[string]string{
			"ahead": strconv.Itoa(ahead), "refused": strconv.FormatBool(refused),
		}})
	})
	bounds, err := settings.API(p.options)
	p.backend = apibackend.NewSpaces(func(namespace string) apibackend.Options {
		return apibackend.Options{
			Bounds: bounds(namespace), Observe: p.operate.Observe, Queue: p.queue,
			Secrets: func(sandbox string) []runner.Secret { return p.credentials(namespace, sandbox) },
		}
	})
	return err
}

// open adds the APIs. E2B's has every path that no other one has.
func (p *program) open(ctx context.Context) (err error) {
	p.e2b, err = e2b.NewSpaces(ctx, e2b.Options{
		State: filepath.Join(p.state, "e2b"), Key: p.access.Token, Access: p.access, Domain: p.domain, Suffix: p.options.IDSuffix, Log: p.log, Queue: p.queue, Beside: p.mux.ServeMux,
		QuotaOf: func(namespace string) e2b.Quota { return settings.Quota(p.options, namespace) },
	}, func(o *e2b.Options) (err error) {
		o.Image = settings.Bounds(p.options, o.Namespace).Image
		if o.Vault, err = secretvault.Open(o.Namespace); err == nil {
			o.Backend, err = p.backend.Of(o.Namespace)
		}
		return err
	})
	if err != nil {
		return err
	}
	p.closers = append(p.closers, p.e2b.Close)
	p.mux.Handle("/", p.e2b)
	for _, add := range []func(context.Context) error{
		p.addMCP,
		p.addREST,
		p.addOperate,
		p.addPage,
	} {
		if err := add(ctx); err != nil {
			p.close()
			return err
		}
	}
	return nil
}

// addMCP adds the tools of demesne-mcp at /mcp.
func (p *program) addMCP(ctx context.Context) (err error) {
	p.tools, err = mcptools.New(ctx, mcptools.Options{
		Settings: p.options,
		Observe:  p.operate.Observe, Queue: p.queue, Log: p.log, Counter: p.operate,
		Host: hostaccess.Options{
			Policy: p.options.HostPolicy, Audit: p.operate.Record, Secrets: []string{p.access.Token},
			Private: []string{cmp.Or(p.options.TokenFile, filepath.Join(p.state, "token"))},
		},
	})
	if err != nil {
		return err
	}
	p.closers = append(p.closers, p.tools.Close)
	p.tools.Routes(func(pattern string, h http.Handler) { p.mux.Handle(pattern, p.access.Handler(h)) }, p.mux.Handle)
	return nil
}

// addREST adds demesne's own API.
func (p *program) addREST(context.Context) error {
	api := restapi.New(restapi.Options{
		Backends: p.backend, Tools: p.tools, E2B: p.e2b, Operate: p.operate, Queue: p.queue, Beside: p.mux.ServeMux, Log: p.log,
	})
	p.mux.Handle("/v1/", p.access.Handler(api))
	// Neither the document nor its page has data of the server. Generators of clients send no token.
	p.mux.Handle("GET /v1/openapi.json", api)
	p.mux.Handle("GET /docs", api)
	p.mux.Handle("GET /docs/", api)
	p.closers = append(p.closers, api.Close)
	return nil
}

// addPage adds the web page. Its files are public; what it shows is not: see [server.Access].
func (p *program) addPage(context.Context) error {
	h, err := page.New(p.access)
	if err != nil {
		return err
	}
	p.mux.Handle(page.Root, h)
	p.mux.Handle("GET /{$}", h)
	return nil
}

// openOperate opens what records events, before anything can cause one.
func (p *program) openOperate(ctx context.Context) error {
	dir, err := settings.AuditDir()
	if err != nil {
		return err
	}
	p.operate, err = operate.New(ctx, operate.Options{
		Dir: dir, Log: p.log, Version: cmdline.Version, Getenv: os.Getenv, Requests: p.options.LogRequests,
		Sandboxes: func(ctx context.Context) ([]runner.Info, error) { return p.mine.List(ctx) },
		Usage:     func(ctx context.Context, id string) (runner.Usage, error) { return p.mine.Measure(ctx, id) },
	}, &p.bus)
	return err
}

// addOperate adds what operators look at.
func (p *program) addOperate(ctx context.Context) error {
	p.operate.Routes(func(pattern string, h http.HandlerFunc) { p.mux.Handle(pattern, p.access.Handler(h)) })
	p.operate.Open(func(pattern string, h http.HandlerFunc) { p.mux.Handle(pattern, h) })
	go p.operate.Watch(ctx)
	go p.operate.Prune(ctx, p.options.KeepAudit, p.options.KeepOutputs, p.mine.Prune)
	return nil
}
