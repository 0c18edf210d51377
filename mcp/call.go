package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Caller calls the tools of a Server within one program. So requests of another API pass the checks of the tools.
type Caller struct {
	client  *sdk.ClientSession
	server  *sdk.ServerSession
	outputs outputs
}

// NewCaller connects to s. The caller closes it.
func NewCaller(ctx context.Context, s *Server) (*Caller, error) {
	near, far := sdk.NewInMemoryTransports()
	server, err := s.sdk.Connect(ctx, far, nil)
	if err != nil {
		return nil, fmt.Errorf("connect to tools: %w", err)
	}
	client, err := sdk.NewClient(&sdk.Implementation{Name: "demesne-server", Version: s.opts.Version}, nil).Connect(ctx, near, nil)
	if err != nil {
		server.Close()
		return nil, fmt.Errorf("connect to tools: %w", err)
	}
	return &Caller{client, server, s.outputs}, nil
}

// Close closes the connection.
func (c *Caller) Close() error { return errors.Join(c.client.Close(), c.server.Close()) }

// Call calls a tool, and stores the structured result in out.
func (c *Caller) Call(ctx context.Context, tool string, arguments map[string]any, out any) error {
	r, err := c.client.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return err
	}
	if r.IsError {
		if len(r.Content) > 0 {
			if t, ok := r.Content[0].(*sdk.TextContent); ok {
				return errors.New(t.Text)
			}
		}
		return errors.New("the call failed")
	}
	b, err := json.Marshal(r.StructuredContent)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, out)
}

// Output is a file that a run left.
type Output struct {
	Path string // below the run's directory; valid UTF-8
	Size int64
	MIME string // by the name
}

// outputsMost bounds the outputs of a run in a list.
const outputsMost = 1000

// Outputs lists the files that a run left in /out, but not its logs. The server's callers must own the run. It fails with
// [os.ErrNotExist].
func (c *Caller) Outputs(run string) (list []Output, err error) {
	dir, err := c.outputDir(run)
	if err != nil {
		return nil, err
	}
	for _, o := range c.outputs.files(dir, outputsMost) {
		list = append(list, Output{o.Name, o.Size, o.MIME})
	}
	return list, nil
}

// OpenOutput opens a file that a run left. It follows no link, and fails with [os.ErrNotExist] for anything but a file.
func (c *Caller) OpenOutput(run, name string) (*os.File, error) {
	dir, err := c.outputDir(run)
	if err != nil {
		return nil, err
	}
	if !filepath.IsLocal(name) || strings.ContainsRune(name, 0) {
		return nil, os.ErrNotExist
	}
	f, err := c.outputs.open(path.Join(dir, name))
	if errors.Is(err, errNoOutput) {
		return nil, os.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, os.ErrNotExist
	}
	return f, nil
}

// outputDir returns the directory with the files of a run, relative to the root.
func (c *Caller) outputDir(run string) (string, error) {
	if run == "" || run != path.Base(run) || strings.HasPrefix(run, ".") || !c.outputs.has(run) {
		return "", os.ErrNotExist
	}
	return c.outputs.outOf(run), nil
}
