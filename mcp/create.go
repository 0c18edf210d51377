package mcp

import (
	"fmt"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

type made struct {
	SandboxID string   `json:"sandbox_id"`
	OutputDir string   `json:"output_dir"`
	Expires   string   `json:"expires,omitempty"`
	Replaced  bool     `json:"replaced,omitempty"`
	Receipt   *receipt `json:"receipt,omitempty"`
}

func (s *Server) create() tool {
	return tool{
		name: "sandbox_create",
		description: "Create a persistent sandbox for sandbox_exec, sandbox_upload and sandbox_download. It keeps its files and background processes between calls. " +
			"It outlives this server, and is removed after 48 h without use. Remove it with sandbox_destroy.",
		in: arguments(s.opts.imageField(), s.opts.egressField("none"), s.opts.filesField(), s.opts.dirsField(),
			limitsField, domainsField, askField, nameField, keyField, replaceField),
		out: results(field("sandbox_id", "string", "").must(), field("output_dir", "string", "/out, on the host").must(),
			field("expires", "string", "RFC 3339; each sandbox_exec extends it"), replacedField, property{name: "receipt", schema: receiptSchema}),
		hints:  hints{openWorld: true},
		handle: (*call).makeSandbox,
	}
}

func (c *call) makeSandbox() (*sdk.CallToolResult, error) {
	r, err := c.sandboxRequest("none")
	if err != nil {
		return nil, err
	}
	watch, stop := c.watch()
	defer stop()
	box, err := c.engine.Create(c.ctx, r, watch)
	if err != nil {
		return nil, err
	}
	c.told = box.Told
	m := made{SandboxID: box.ID, OutputDir: box.OutputDir, Replaced: box.Replaced, Receipt: receiptOf(box.Receipt)}
	if !box.Expires.IsZero() {
		m.Expires = box.Expires.UTC().Format(time.RFC3339)
	}
	text := fmt.Sprintf("sandbox_id: %s\noutput_dir: %s", m.SandboxID, m.OutputDir)
	return c.withReceipt(answer(text, m), box.Receipt), nil
}
