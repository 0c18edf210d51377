package mcp

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// addResources offers the files that sandboxes wrote as resources. It adds a list of the newest
// files and a template for their URIs.
func (s *Server) addResources() {
	if s.opts.Outputs == "" {
		return
	}
	s.outputs = outputs{s.opts.Outputs, s.opts.Mine}
	s.sdk.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "output", URITemplate: outputScheme + "{dir}/{+path}",
		Description: "A file that a sandbox wrote to /out: dir is the last element of its output_dir, path is relative to /out.",
	}, s.readOutput)
	s.sdk.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			res, err := next(ctx, method, req)
			if list, ok := res.(*sdk.ListResourcesResult); ok && err == nil {
				for _, o := range s.outputs.recent() {
					list.Resources = append(list.Resources, &sdk.Resource{Name: o.Name, URI: o.URI, MIMEType: o.MIME, Size: o.Size})
				}
			}
			return res, err
		}
	})
}

// readOutput answers resources/read. Text is returned as text, all other content as a blob, also
// images.
func (s *Server) readOutput(_ context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	uri := req.Params.URI
	content, kind, err := s.outputs.read(uri)
	if errors.Is(err, errNoOutput) {
		return nil, sdk.ResourceNotFoundError(uri)
	}
	if err != nil {
		return nil, err
	}
	c := &sdk.ResourceContents{URI: uri, MIMEType: kind}
	if utf8.Valid(content) && !strings.HasPrefix(kind, "image/") || strings.HasPrefix(kind, "image/svg") {
		c.Text = string(content)
	} else {
		c.Blob = content
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{c}}, nil
}

// outputsField is the schema of the list of files in results.
var outputsField = property{name: "outputs", schema: map[string]any{
	"type": "array", "description": "files in output_dir other than the logs; at most 20 are listed",
	"items": results(field("name", "string", "").must(), field("uri", "string", "for resources/read").must(),
		field("size", "integer", "bytes").must(), field("mime_type", "string", "").must()),
}}

// link adds the files of the output directory to a result, as resource links.
func (s *Server) link(r *sdk.CallToolResult, files []output) *sdk.CallToolResult {
	for _, f := range files {
		r.Content = append(r.Content, &sdk.ResourceLink{URI: f.URI, Name: f.Name, MIMEType: f.MIME, Size: &f.Size})
	}
	return r
}

// written lists the files of an output directory.
func (s *Server) written(dir string) []output {
	name, below := strings.CutPrefix(dir, s.outputs.root+"/")
	_, inside, deep := strings.Cut(name, "/")
	if s.outputs.root == "" || !below || deep && inside != agentOut {
		return nil
	}
	return s.outputs.files(name, listedFiles)
}
