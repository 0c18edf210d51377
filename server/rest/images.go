package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"demesne/client"
	"demesne/server"
)

// imageAPI has the handlers of images.
type imageAPI struct{ *Server }

func (s *Server) imageRoutes() {
	h := imageAPI{s}
	answers(s, operation("list-images", http.MethodGet, "/images", "Images", "List the images in the store"), h.listImages)
	pull := operation("pull-image", http.MethodPost, "/images/pull", "Images", "Fetch an image, and stream the progress")
	eventResponse(s.api, &pull, eventOf[client.Progress]("progress"), eventOf[client.Image]("done"), eventOf[client.Error]("error"))
	huma.Register(s.api, pull, h.pullImage)
	s.buildRoutes()
	huma.Register(s.api, operation("remove-image", http.MethodDelete, "/images", "Images", "Remove an image; for the operator"), h.removeImage)
}

func (s imageAPI) listImages(ctx context.Context, _ *struct{}) (client.Page[client.Image], error) {
	all, err := s.service(ctx).ListImages(ctx)
	return page(all), err
}

// pullInput is the request of pull.
type pullInput struct{ Body client.PullRequest }

func (s imageAPI) pullImage(ctx context.Context, in *pullInput) (*huma.StreamResponse, error) {
	return s.steps(ctx, func(ctx context.Context, tell func(string)) (any, error) {
		return s.service(ctx).Pull(ctx, in.Body.Name, tell)
	})
}

// steps does work, and returns the answer that streams its lines, and at last done or error. What fails before the first line is
// an ordinary error. The end of the answer ends the work.
func (s *Server) steps(ctx context.Context, work func(ctx context.Context, tell func(string)) (any, error)) (*huma.StreamResponse, error) {
	type result struct {
		done any
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	lines, end := make(chan string), make(chan result, 1)
	go func() {
		done, err := work(ctx, func(line string) {
			select {
			case lines <- line:
			case <-ctx.Done():
			}
		})
		end <- result{done, err}
	}()
	var first string
	select {
	case first = <-lines:
	case e := <-end:
		if e.err != nil {
			cancel()
			return nil, failed(e.err)
		}
		end <- e
	}
	return streaming(ctx, cancel, func(to stream) {
		if first != "" {
			to.send("progress", client.Progress{Message: first})
		}
		for {
			select {
			case line := <-lines:
				to.send("progress", client.Progress{Message: line})
			case e := <-end:
				if e.err != nil {
					to.send("error", s.shown(ctx, e.err))
				} else {
					to.send("done", e.done)
				}
				return
			}
		}
	}), nil
}

// imageInput names an image.
type imageInput struct {
	Name string `query:"name" required:"true" maxLength:"512"`
}

func (s imageAPI) removeImage(ctx context.Context, in *imageInput) (*struct{}, error) {
	if !server.CallerOf(ctx).Operator {
		return nil, problem(http.StatusForbidden, "only the operator may remove images, which all callers share")
	}
	return nil, failed(s.service(ctx).RemoveImage(ctx, in.Name))
}
