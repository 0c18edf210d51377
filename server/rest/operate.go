package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"demesne/client"
)

// operateRoutes describes the routes of package operate, which serves them.
func (s *Server) operateRoutes() {
	query := func(name, kind, about string) *huma.Param {
		return &huma.Param{Name: name, In: "query", Description: about, Schema: &huma.Schema{Type: kind}}
	}
	which := []*huma.Param{
		query("after", huma.TypeInteger, "Events with a higher id"), query("type", huma.TypeString, "Events of this type, or of all that begin with it and a dot"),
		query("sandbox", huma.TypeString, "Events of this sandbox"), query("namespace", huma.TypeString, "Events of this namespace; other callers than the operator may name their own"),
		query("since", huma.TypeString, "Events of this time and later (RFC 3339)"),
	}
	stream := operation("stream-events", http.MethodGet, "/events", "Events", "Follow what happens")
	stream.Parameters = append([]*huma.Param{
		query("last", huma.TypeInteger, "First send so many of the newest events, at most 200"),
		{Name: "Last-Event-ID", In: "header", Description: "As after: what a client got last", Schema: &huma.Schema{Type: huma.TypeInteger}},
	}, which...)
	stream.Responses = map[string]*huma.Response{"200": {
		Description: "Server-sent events, named by their type. The event sandboxes, without an id, says that the list of sandboxes has changed, also by other programs. The event lost ends the stream of a client that is too slow",
		Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: schemaOf[client.Event](s.api.OpenAPI().Components.Schemas)}},
	}}
	entries := operation("list-audit", http.MethodGet, "/audit", "Events", "Read the audit log")
	entries.Parameters = append([]*huma.Param{query("limit", huma.TypeInteger, "From 1 to 1000, by default 100")}, which...)
	entries.Responses = jsonAnswer[client.AuditEntries](s, "The first entries after the given one, or the newest")
	verify := operation("verify-audit", http.MethodGet, "/audit/verify", "Events", "Check the chain of the audit log, as the operator")
	verify.Parameters = []*huma.Param{query("mark", huma.TypeString, "ID:SHA256 of an entry, as an earlier check answered")}
	verify.Responses = jsonAnswer[client.AuditReport](s, "What is wrong")
	for _, op := range []*huma.Operation{&stream, &entries, &verify} {
		op.Responses["default"] = &huma.Response{Description: "Error", Content: map[string]*huma.MediaType{
			"application/json": {Schema: schemaOf[client.Error](s.api.OpenAPI().Components.Schemas)},
		}}
		s.api.OpenAPI().AddOperation(op)
	}
}

// jsonAnswer describes an answer in JSON.
func jsonAnswer[T any](s *Server, about string) map[string]*huma.Response {
	return map[string]*huma.Response{"200": {Description: about, Content: map[string]*huma.MediaType{
		"application/json": {Schema: schemaOf[T](s.api.OpenAPI().Components.Schemas)},
	}}}
}

func (s *Server) queueRoutes() {
	if s.opts.Queue == nil {
		return
	}
	answers(s, operation("queue", http.MethodGet, "/queue", "Commands", "Count the commands that run and wait"),
		func(ctx context.Context, _ *struct{}) (client.Queue, error) { return s.opts.Queue(ctx), nil })
}
