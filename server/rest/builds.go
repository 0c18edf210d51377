package rest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/danielgtaylor/huma/v2"

	"demesne/client"
	"demesne/internal/fsutil"
	"demesne/server"
	"demesne/session"
)

// buildInput is the request of a build, whose body is the context.
type buildInput struct{ client.BuildRequest }

func (s *Server) buildRoutes() {
	op := operation("build-image", http.MethodPost, "/builds", "Images", "Build an image of a Containerfile, and stream the progress; for the operator")
	op.RequestBody = &huma.RequestBody{Content: binary("")["200"].Content}
	op.SkipValidateBody = true
	op.Middlewares = append(op.Middlewares, fileAPI{s}.withBody)
	eventResponse(s.api, &op, eventOf[client.Progress]("progress"), eventOf[client.Built]("done"), eventOf[client.Error]("error"))
	huma.Register(s.api, op, s.buildImage)
}

func (s *Server) buildImage(ctx context.Context, in *buildInput) (*huma.StreamResponse, error) {
	if !server.CallerOf(ctx).Operator {
		return nil, problem(http.StatusForbidden, "only the operator may build images here, which all callers share; a namespace has Template.build of E2B's API")
	}
	if s.building.Add(1) > server.MaxBuilds {
		s.building.Add(-1)
		return nil, failed(fmt.Errorf("%w: at most %d builds wait or run", session.ErrBusy, server.MaxBuilds))
	}
	body, _ := ctx.Value(bodyKey{}).(io.Reader)
	uploaded, err := spool(body)
	if err != nil {
		s.building.Add(-1)
		return nil, failed(err)
	}
	return s.steps(ctx, func(ctx context.Context, tell func(string)) (any, error) {
		defer s.building.Add(-1)
		defer uploaded.Close()
		ctx, cancel := context.WithTimeout(ctx, server.BuildTime)
		defer cancel()
		log := &lineLog{tell: tell}
		built, err := s.service(ctx).BuildImage(ctx, in.BuildRequest, uploaded, log)
		log.finish()
		return built, err
	})
}

// spool keeps a body in a file without a name, which begins at its start.
func spool(body io.Reader) (_ *os.File, err error) {
	dir, err := fsutil.StateDir("server")
	if err != nil {
		return nil, err
	}
	f, err := (*os.File)(nil), os.MkdirAll(dir, 0o700)
	if err == nil {
		f, err = os.CreateTemp(dir, ".context-")
	}
	if err != nil {
		return nil, fmt.Errorf("keep context: %w", fsutil.Reason(err))
	}
	err = os.Remove(f.Name())
	if err == nil && body != nil {
		var n int64
		if n, err = io.Copy(f, io.LimitReader(body, server.MaxContext+1)); n > server.MaxContext {
			err = problem(http.StatusRequestEntityTooLarge, server.TooLarge(server.MaxContext))
		}
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// maxProgress bounds a line of a build's progress.
const maxProgress = 4 << 10

// lineLog passes on whole lines.
type lineLog struct {
	tell func(string)
	rest []byte
}

func (l *lineLog) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole && len(l.rest) < maxProgress {
			return len(b), nil
		}
		if !whole {
			line, rest = l.rest[:maxProgress], l.rest[maxProgress:]
		}
		l.pass(line)
		l.rest = rest
	}
}

func (l *lineLog) finish() { l.pass(l.rest) }

func (l *lineLog) pass(line []byte) {
	if line = bytes.TrimRight(line, "\r"); len(line) > 0 {
		l.tell(string(bytes.ToValidUTF8(line, []byte("\ufffd"))))
	}
}
