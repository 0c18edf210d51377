package mcp

import (
	"fmt"
	"time"

	"demesne/session"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

type made struct {
	SandboxID string `json:"sandbox_id"`
	OutputDir string `json:"output_dir"`
	Expires   string `json:"expires,omitempty"`
	Replaced  bool   `json:"replaced,omitempty"`
}

var madeFields = results(field("sandbox_id", "string", "").must(), field("output_dir", "string", "/out, on the host").must(),
	field("expires", "string", "RFC 3339; each sandbox_exec extends it").minor(), replacedField.minor(), inputsField, warningField)

func (s *Server) create() tool {
	in := []property{
		s.opts.imageField().described("As in sandbox_script. Default " + s.opts.Image + "."), s.opts.egressField("none"), alsoFilesField(), dirsField(),
		nameField, keyField, replaceField, limitsAlso, domainsField.plain(), askField.plain(), s.opts.secretsField().plain(),
	}
	if s.opts.has(setSandboxes) {
		in = append(in, ttlField, userField)
	}
	return tool{
		name: "sandbox_create",
		description: "Create a persistent sandbox for sandbox_exec. It keeps files and background processes, " +
			"and is removed by sandbox_destroy or after 48 h without use.",
		more: "It outlives this server. sandbox_upload and sandbox_download copy files; sandbox_list finds it again.",
		in:   arguments(in...), out: madeFields,
		hints:  hints{openWorld: true},
		handle: (*call).makeSandbox,
	}
}

func (c *call) makeSandbox() (*sdk.CallToolResult, error) {
	r, err := c.sandboxRequest("none")
	if err == nil {
		err = c.lifeRequest(&r)
	}
	if err != nil {
		return nil, err
	}
	watch, stop := c.watch()
	defer stop()
	sb, err := c.engine.Create(c.ctx, r, watch)
	if err != nil {
		return nil, err
	}
	return c.answerMade(sb), nil
}

func (c *call) answerMade(sb *session.Created) *sdk.CallToolResult {
	c.told = sb.Told
	m := made{SandboxID: sb.ID, OutputDir: sb.OutputDir, Replaced: sb.Replaced}
	if !sb.Expires.IsZero() {
		m.Expires = sb.Expires.UTC().Format(time.RFC3339)
	}
	text := fmt.Sprintf("sandbox_id: %s\noutput_dir: %s", m.SandboxID, m.OutputDir)
	if m.Expires != "" {
		text += "\nexpires: " + m.Expires
	}
	if m.Replaced {
		text += "\nreplaced: true"
	}
	r := answer(text, m)
	r.Meta = receiptAsMeta(sb.Receipt)
	return r
}

func (s *Server) destroy() tool {
	return tool{
		name:        "sandbox_destroy",
		description: "Remove a sandbox: end its processes and delete its files. output_dir stays unless it is empty.",
		in:          arguments(boxField),
		hints:       hints{destructive: true, idempotent: true},
		handle: func(c *call) (*sdk.CallToolResult, error) {
			id, err := c.args.required("sandbox_id")
			if err != nil {
				return nil, err
			}
			if err := c.engine.Destroy(c.ctx, id); err != nil {
				return nil, err
			}
			return answer(fmt.Sprintf("destroyed: %s", id), nil), nil
		},
	}
}
