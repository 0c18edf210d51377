package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"demesne/client"
	"demesne/internal/text"
	"demesne/server"
	"demesne/session"
)

// stream sends server-sent events. It is safe for concurrent use.
type stream struct {
	*server.EventStream
	cancel context.CancelFunc // ends what makes the events, once they cannot be sent
}

// streaming returns an answer whose events f sends. ctx belongs to the work that makes them; the end of the answer cancels it.
func streaming(ctx context.Context, cancel context.CancelFunc, f func(to stream)) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer cancel()
		_, w := humago.Unwrap(hc)
		to := stream{server.NewEventStream(w), cancel}
		defer to.Close()
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush() // the client knows now that there is no error
		go to.ping(ctx)
		f(to)
	}}
}

// ping sends comments until ctx ends.
func (s stream) ping(ctx context.Context) {
	tick := time.NewTicker(server.PingTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.Comment("ping")
		}
	}
}

// send sends one event.
func (s stream) send(event string, data any) {
	text, err := json.Marshal(data)
	if err == nil {
		err = s.Send("", event, text)
	}
	if err != nil {
		s.cancel()
	}
}

// eventResponse describes a stream in the OpenAPI document. OpenAPI 3.1 cannot describe events: the schema is for one event's
// data.
func eventResponse(api huma.API, op *huma.Operation, events ...event) {
	var schemas []*huma.Schema
	for _, e := range events {
		schemas = append(schemas, &huma.Schema{
			Title: "event " + e.name, Type: huma.TypeObject, Required: []string{"event", "data"},
			Properties: map[string]*huma.Schema{
				"event": {Type: huma.TypeString, Enum: []any{e.name}}, "data": e.schema(api.OpenAPI().Components.Schemas),
			},
		})
	}
	one := schemas[0]
	if len(schemas) > 1 {
		one = &huma.Schema{OneOf: schemas}
	}
	op.Responses = map[string]*huma.Response{"200": {
		Description: "Server-sent events",
		Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: one}},
	}}
}

// event is a kind of event of a stream.
type event struct {
	name   string
	schema func(huma.Registry) *huma.Schema
}

func eventOf[T any](name string) event {
	return event{name, func(r huma.Registry) *huma.Schema { return schemaOf[T](r) }}
}

// started is a request whose command run runs.
type started struct {
	session.Request
	run func(context.Context, session.RunOptions, session.Callbacks) (*session.RunResult, error)
}

// streamed registers a route that streams a command: the events start, chunk, and at last done or error. What fails before
// the command starts is an ordinary error.
func streamed[I any](s *Server, op huma.Operation, begin func(context.Context, *I) (started, error)) {
	eventResponse(s.api, &op, eventOf[client.Started]("start"), eventOf[client.Chunk]("chunk"), eventOf[client.Result]("done"), eventOf[client.Error]("error"))
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*huma.StreamResponse, error) {
		r, err := begin(ctx, in)
		if err != nil {
			return nil, err
		}
		return s.carry(ctx, r)
	})
}

// carry starts a command, and returns the answer that streams it.
func (s *Server) carry(ctx context.Context, from started) (*huma.StreamResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	type ended struct {
		r   *session.RunResult
		err error
	}
	began, end, chunks := make(chan string, 1), make(chan ended, 1), make(chan client.Chunk)
	out, errs := &chunker{name: "stdout", to: chunks, ctx: ctx}, &chunker{name: "stderr", to: chunks, ctx: ctx}
	go func() {
		o, id := from.Run, ""
		o.Stdout, o.Stderr = out, errs
		r, err := from.run(ctx, o, session.Callbacks{
			Made: func(sb *session.Sandbox) { id = sb.ID }, Began: func(func() session.Tail) { began <- id },
		})
		out.finish()
		errs.finish()
		end <- ended{r, err}
	}()
	var id string
	select {
	case id = <-began:
	case e := <-end: // before it began, or at once
		select {
		case id = <-began:
			end <- e
		default:
			if e.err != nil {
				cancel()
				return nil, unstarted(e.err)
			}
			id = e.r.Sandbox
			end <- e
		}
	}
	return streaming(ctx, cancel, func(to stream) {
		to.send("start", client.Started{Sandbox: id})
		for {
			select {
			case c := <-chunks:
				to.send("chunk", c)
			case e := <-end:
				if e.err != nil {
					to.send("error", s.shown(ctx, e.err))
				} else {
					to.send("done", resultOf(e.r, s.reduced(ctx, from.Request)))
				}
				return
			}
		}
	}), nil
}

// chunker turns output into chunks. It keeps the begin of a character until the rest of it arrives.
type chunker struct {
	name string
	to   chan<- client.Chunk
	ctx  context.Context
	rest []byte
}

func (c *chunker) Write(b []byte) (int, error) {
	all := append(c.rest, b...)
	n := len(all) - text.Partial(all)
	c.rest = append([]byte(nil), all[n:]...)
	return len(b), c.pass(all[:n])
}

// finish passes on what is not a whole character.
func (c *chunker) finish() { c.pass(c.rest) }

func (c *chunker) pass(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	chunk := client.Chunk{Stream: c.name}
	if utf8.Valid(b) {
		chunk.Text = string(b)
	} else {
		chunk.Base64 = append([]byte(nil), b...)
	}
	select {
	case c.to <- chunk:
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}
