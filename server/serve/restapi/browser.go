package restapi

import (
	"context"

	"demesne/client"
	"demesne/mcp/browser"
	"demesne/server"
	"demesne/server/apibackend"
	"demesne/server/apibackend/kinds"
	"demesne/session"
)

// browsers are the browsers of all callers, by their sandboxes.
type browsers struct {
	of  *apibackend.Spaces
	all browser.Browsers
}

// browse calls a tool in the browser of a caller's sandbox.
func (b *browsers) browse(ctx context.Context, sandbox, tool string, args map[string]any) (*client.BrowserResult, error) {
	back, err := b.of.Of(server.CallerOf(ctx).Namespace)
	if err != nil {
		return nil, err
	}
	done, err := back.Queue.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	sb, err := back.Service.Open(ctx, sandbox, session.Callbacks{})
	if err != nil {
		return nil, kinds.Of(err)
	}
	r, err := b.all.Call(ctx, sb, tool, args)
	if err != nil {
		return nil, kinds.As(err, session.ErrInvalid)
	}
	c := &client.BrowserResult{Text: back.Service.Hidden(sandbox).Text(r.Text), Failed: r.Failed, Pictures: []client.Picture{}}
	for _, p := range r.Pictures {
		c.Pictures = append(c.Pictures, client.Picture{MIME: p.MIME, Data: p.Data})
	}
	return c, nil
}
