package headless

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"time"

	"demesne/agents"
	"demesne/agents/tree"
	"demesne/internal/cmdline"
	"demesne/mcp"
	"demesne/runner"
	"demesne/session/operator"
)

// nested returns the function that serves the MCP server of an agent on a listener in its sandbox. What connects is a
// process of that sandbox: so the server needs no name or token from its caller.
func nested(getenv func(string) string, catalog *agents.Catalog, namespace string) func(context.Context, net.Listener, tree.Parent) error {
	return func(ctx context.Context, l net.Listener, p tree.Parent) error {
		o, err := nestedOptions(getenv, catalog.In(p.Image), namespace) // children inherit the image
		if err != nil {
			return err
		}
		o.Models, o.Research = first(o.Models, p.Model), p.Research
		server := &http.Server{Handler: mcp.New(p, o).Handler(mcp.HTTPOptions{}), ReadHeaderTimeout: 10 * time.Second}
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

func nestedOptions(getenv func(string) string, catalog *agents.Catalog, namespace string) (mcp.Options, error) {
	bounds, err := operator.FromEnvironment(getenv)
	if err != nil {
		return mcp.Options{}, err
	}
	closed := runner.ClosedModes()
	bounds.Egress, bounds.AllowedDomains = closed[len(closed)-1], nil // a child has no rule that its parent lacks
	p, err := operator.New(bounds, operator.Caller{Namespace: namespace, Model: true})
	if err != nil {
		return mcp.Options{}, err
	}
	return mcp.Options{
		Version: cmdline.Version, Nested: true, Policy: p, Images: p.Images(), Image: p.Default().Given, Egress: p.Modes(),
		Models: catalog.Models(),
		Model: func(name, tool, image string) error {
			_, err := catalog.In(image).Choose(tool, name)
			return err
		},
	}, nil
}
