package rest

import (
	"context"
	"net/http"

	"demesne/client"
	"demesne/runner"
)

// browserRoutes adds the tools of a browser, which MCP's tool set has too.
func (s *Server) browserRoutes() {
	if s.opts.Browse == nil {
		return
	}
	within(s, operation("browse", http.MethodPost, "/sandboxes/{id}/browser/{tool}", "Sandboxes", "Call a tool of the browser in a sandbox"), s.browse)
}

type browseInput struct {
	Named
	Tool string `path:"tool" maxLength:"64" doc:"Such as browser_navigate"`
	Body client.BrowseRequest
}

func (s *Server) browse(ctx context.Context, info *runner.Info, in *browseInput) (*client.BrowserResult, error) {
	return s.opts.Browse(ctx, info.ID, in.Tool, in.Body.Arguments)
}
