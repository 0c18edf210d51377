package tree

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"demesne/agents"
	"demesne/images/imageref"
	"demesne/internal/cmdline"
	"demesne/mcp"
	"demesne/proxy/policy"
)

// nested returns the function that serves the MCP server of an agent on a listener in its sandbox. What connects is a
// process of that sandbox: so the server needs no name or token from its caller.
func (f *face) nested(catalog *agents.Catalog) func(context.Context, net.Listener, mcp.Service) error {
	return func(ctx context.Context, l net.Listener, b mcp.Service) error {
		own := catalog
		parent, ok := b.(family)
		if ok {
			own = catalog.In(parent.n.req.Image) // which children inherit
		}
		o := f.nestedOptions(own)
		if ok {
			o.Models = first(o.Models, parent.n.agent.Model)
			o.Research = parent.n.offered()
		}
		s := mcp.New(b, o)
		server := &http.Server{Handler: s.Handler(mcp.HTTPOptions{}), ReadHeaderTimeout: 10 * time.Second}
		defer context.AfterFunc(ctx, func() { server.Close() })()
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
}

// first returns list with v at its front: the first model is the default.
func first(list []string, v string) []string {
	return append([]string{v}, slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == v })...)
}

func (f *face) nestedOptions(catalog *agents.Catalog) mcp.Options {
	list := strings.FieldsFunc(f.getenv("DEMESNE_ALLOWED_IMAGES"), func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' })
	return mcp.Options{
		Version: cmdline.Version, Nested: true,
		Images: append(imageref.Catalogue(), imageref.Entries(list)...), Image: imageref.Default(f.getenv),
		Egress: slices.DeleteFunc(policy.ModeNames(), func(name string) bool { return name == openMode }),
		Models: catalog.Models(),
		Model: func(name, tool, image string) error {
			_, err := catalog.In(image).Choose(tool, name)
			return err
		},
		Allowed: func(name string) (ok, stored bool) { return imageref.Permitted(name, list) },
	}
}
