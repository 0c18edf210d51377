package rest

import (
	"context"
	"net/http"

	"demesne/client"
)

func (s *Server) queueRoutes() {
	if s.opts.Queue == nil {
		return
	}
	answers(s, operation("queue", http.MethodGet, "/queue", "Commands", "Count the commands that run and wait"),
		func(ctx context.Context, _ *struct{}) (client.Queue, error) { return s.opts.Queue(ctx), nil })
}
