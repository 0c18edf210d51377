package serve

import (
	"context"

	"demesne/server/page"
)

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
