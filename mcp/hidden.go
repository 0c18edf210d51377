package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// With [Options].Hidden callers do not learn where outputs are on the host. A path below the output root is shown as the URI
// of the resource, and such a URI is understood where a path of the host is.

// hiding replaces the output root in everything that the server answers.
func hiding(root string) sdk.Middleware {
	inJSON, _ := json.Marshal(root)
	quoted := strings.Trim(string(inJSON), `"`)
	shown := strings.TrimSuffix(outputScheme, "/")
	h := hider{strings.NewReplacer(root+"/", outputScheme, root, shown, quoted+"/", outputScheme, quoted, shown)}
	return func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			res, err := next(ctx, method, req)
			if err != nil {
				return res, h.failure(err)
			}
			switch r := res.(type) {
			case *sdk.CallToolResult:
				h.content(r.Content...)
				h.value(&r.StructuredContent)
				for k, v := range r.Meta {
					h.value(&v)
					r.Meta[k] = v
				}
			case *sdk.GetPromptResult:
				for _, m := range r.Messages {
					h.content(m.Content)
				}
			}
			return res, nil
		}
	}
}

type hider struct{ *strings.Replacer }

func (h hider) content(list ...sdk.Content) {
	for _, c := range list {
		if t, ok := c.(*sdk.TextContent); ok {
			t.Text = h.Replace(t.Text)
		}
	}
}

// value replaces v by its JSON form. A value that has none is dropped.
func (h hider) value(v *any) {
	if *v == nil {
		return
	}
	b, err := json.Marshal(*v)
	if err != nil {
		*v = nil
		return
	}
	*v = json.RawMessage(h.Replace(string(b)))
}

// failure keeps the code of an error.
func (h hider) failure(err error) error {
	text := h.Replace(err.Error())
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return &jsonrpc.Error{Code: e.Code, Message: h.Replace(e.Message), Data: json.RawMessage(h.Replace(string(e.Data)))}
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

// hide makes m show its output root as hiding does.
func (m *Mounts) hide() { m.hidden = true }

// shownRoot returns the output root as callers see it.
func (m Mounts) shownRoot() string {
	if m.hidden {
		return strings.TrimSuffix(outputScheme, "/")
	}
	return m.outputs
}

// host returns the path of the host for what a caller wrote.
func (m Mounts) host(path string) string {
	if rest, ok := strings.CutPrefix(path, outputScheme); ok && m.hidden {
		return filepath.Join(m.outputs, rest)
	}
	return path
}

// plausible reports whether a caller that does not know the host's files may ask for a path: otherwise the error would say
// whether it exists.
func (m Mounts) plausible(path string) bool {
	path = filepath.Clean(path)
	return !m.hidden || m.allows(path) || m.isOutput(path)
}
