package rest

import (
	"context"
	"embed"
	_ "embed"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"demesne/client"
	"demesne/runner/ipc"
	"demesne/server"
)

//go:embed describe.json
var describeJSON []byte

// described are the descriptions of operations, by id, and an example of each request and answer, by its schema.
type described struct {
	Operations map[string]string
	Examples   map[string]any
}

// describeAll completes the document: descriptions, examples, and the errors of each operation.
func (s *Server) describeAll() {
	var all described
	if err := json.Unmarshal(describeJSON, &all); err != nil {
		panic(err) // the file is part of the program
	}
	doc := s.api.OpenAPI()
	doc.Servers = []*huma.Server{{URL: "/", Description: "This server"}}
	doc.Info.License = &huma.License{Name: "MIT", Identifier: "MIT"}
	for name, schema := range doc.Components.Schemas.Map() {
		if example, ok := all.Examples[name]; ok {
			schema.Examples = []any{example}
		}
	}
	doc.Components.Responses = map[string]*huma.Response{}
	for _, e := range problems {
		example := client.Error{Code: e.status, Message: e.text, Data: []client.Detail{}}
		doc.Components.Responses["Error"+strconv.Itoa(e.status)] = &huma.Response{Description: e.about, Content: map[string]*huma.MediaType{
			"application/json": {Schema: schemaOf[client.Error](doc.Components.Schemas), Example: example},
		}}
	}
	for path, item := range doc.Paths {
		for _, op := range operations(item) {
			if op.Description == "" {
				op.Description = all.Operations[op.OperationID]
			}
			for _, e := range problems {
				if e.of(path, op) {
					op.Responses[strconv.Itoa(e.status)] = &huma.Response{Ref: "#/components/responses/Error" + strconv.Itoa(e.status)}
				}
			}
		}
	}
}

func operations(p *huma.PathItem) []*huma.Operation {
	return slices.DeleteFunc([]*huma.Operation{p.Get, p.Put, p.Post, p.Patch, p.Delete}, func(op *huma.Operation) bool { return op == nil })
}

// problems are the errors that clients can expect, with the operations that answer them. Others have the same shape.
var problems = []struct {
	status      int
	about, text string
	of          func(path string, op *huma.Operation) bool
}{
	{400, "The request cannot be done: an image or a program does not exist, or the operator allows less", "image \"x\": the operator does not allow this image", takesInput},
	{401, "The token is missing or wrong", "the token is missing or wrong", func(string, *huma.Operation) bool { return true }},
	{403, "Only the operator may do this, or the policy does not allow it", "only the operator may do this", func(_ string, op *huma.Operation) bool {
		return slices.Contains([]string{"remove-image", "build-image", "verify-audit"}, op.OperationID) || strings.HasPrefix(op.OperationID, "host-")
	}},
	{404, "Nothing of this name is the caller's", ipc.NoSuchSandbox("x").Error(), func(path string, _ *huma.Operation) bool { return strings.Contains(path, "{") }},
	{409, "The name is in use, or the sandbox is in a state that does not allow it", "sandbox \"x\": exists already", func(path string, op *huma.Operation) bool {
		return strings.HasPrefix(path, "/v1/sandboxes") && op.Method != http.MethodGet || op.OperationID == "remove-image" || op.OperationID == "host-approve" || op.OperationID == "host-refuse"
	}},
	{413, "The body is too large", "the body has more than 8388608 bytes", func(_ string, op *huma.Operation) bool { return op.RequestBody != nil }},
	{422, "A field has a wrong value, or is unknown", "validation failed", takesInput},
	{429, "Too many sandboxes; or too many requests, or too many commands wait: Retry-After says when to try again", "the queue is full: too many commands wait", makesWork},
	{502, "The registry of an image does not answer", "image \"x\": no answer", func(_ string, op *huma.Operation) bool {
		return slices.Contains([]string{"run", "run-stream", "create-sandbox", "pull-image"}, op.OperationID)
	}},
	{503, "There is no room for another sandbox, or the audit log cannot be written", "no room for another sandbox", makesWork},
}

func takesInput(_ string, op *huma.Operation) bool {
	return op.RequestBody != nil || slices.ContainsFunc(op.Parameters, func(p *huma.Param) bool { return p.In == "query" })
}

func makesWork(_ string, op *huma.Operation) bool {
	return slices.Contains([]string{"run", "run-stream", "exec", "exec-stream", "create-sandbox", "fork-sandbox", "start-sandbox", "start-job", "start-agent", "open-terminal"}, op.OperationID)
}

// assets are the files of the page, which loads nothing from elsewhere.
//
//go:embed docs
var assets embed.FS

func (s *Server) aboutRoutes() {
	answers(s, operation("get-server", http.MethodGet, "/server", "Server", "Describe the server, and the caller that asks"), s.describe)
}

func (s *Server) describe(ctx context.Context, _ *struct{}) (client.Server, error) {
	c := server.CallerOf(ctx)
	about := client.Server{Version: s.opts.Version, Caller: c.Name, Namespace: c.Namespace, Operator: c.Operator, Host: s.opts.Host != nil}
	if s.opts.Jobs != nil {
		about.Models = s.opts.Jobs.Models(ctx)
	}
	if c.Namespace != "" && s.opts.Stored != nil {
		about.Stored = s.opts.Stored(c.Namespace)
	}
	return about, nil
}

// Document returns the OpenAPI document.
func (s *Server) Document() ([]byte, error) {
	return json.MarshalIndent(s.api.OpenAPI(), "", "  ")
}

// docPolicy lets the page load its own files alone.
const docPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (s *Server) docRoutes() {
	s.mux.HandleFunc("GET /v1/openapi.json", func(w http.ResponseWriter, r *http.Request) {
		b, err := s.Document()
		if err != nil {
			write(w, problem(http.StatusInternalServerError, err.Error()))
			return
		}
		w.Header().Set("Content-Type", "application/vnd.oai.openapi+json;version=3.1")
		w.Write(b)
	})
	for path, file := range map[string]string{"/docs": "index.html", "/docs/docs.js": "docs.js", "/docs/docs.css": "docs.css"} {
		s.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Security-Policy", docPolicy)
			w.Header().Set("Referrer-Policy", "no-referrer")
			http.ServeFileFS(w, r, assets, "docs/"+file)
		})
	}
}
