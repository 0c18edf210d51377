package sandboxes

import (
	"context"

	"demesne/mcp/browser"
	"demesne/session"
)

// Browse calls a tool of the browser in the sandbox of r's key, which it makes if it is missing.
func (f *Sandboxes) Browse(ctx context.Context, r session.Request, tool string, args map[string]any, w session.Callbacks) (*browser.Result, error) {
	c, err := f.Options(r)
	if err != nil {
		return nil, err
	}
	done, err := f.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	sb, err := f.Service.Create(ctx, c, w)
	if err != nil {
		return nil, Explained(err)
	}
	defer f.Answer(sb.ID, w.Ask)()
	b, err := f.browsers.Call(ctx, sb, tool, args)
	if err != nil {
		return nil, Explained(err)
	}
	b.Text = f.Hidden(sb.ID).Text(b.Text)
	return b, nil
}
