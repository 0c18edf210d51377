package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"demesne/client"
)

func (s *Server) queueRoutes() {
	if s.opts.Queue == nil {
		return
	}
	huma.Register(s.api, operation("queue", http.MethodGet, "/queue", "Commands", "Count the commands that run and wait"),
		func(ctx context.Context, _ *struct{}) (*of[client.Queue], error) {
			return &of[client.Queue]{s.opts.Queue(ctx)}, nil
		})
}
