package mcp

import (
	"context"
	"errors"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/runner"
)

// buildTools returns the tool that builds images, if the backend builds.
func (s *Server) buildTools() []tool {
	if s.opts.Build == nil {
		return nil
	}
	return []tool{{
		name:        "sandbox_build",
		description: "Build an image from a Containerfile, for the argument image of later calls.",
		more: "FROM and COPY --from name images that sandbox_script may use. Each RUN is in a sandbox with the network of egress. " +
			"The newest 16 images are kept.",
		in: arguments(field("containerfile", "string", "Its text. COPY takes files and directories by their base names.").must(),
			alsoFilesField(), dirsField(), s.opts.egressField(s.opts.egressDefault("package-managers")).plain(), domainsField.plain(), limitsAlso, timeoutField.plain()),
		out:     results(field("image", "string", "").must(), field("digest", "string", "").must(), field("log", "string", "The end of the output."), inputsField, warningField),
		textual: true,
		hints:   hints{openWorld: true},
		handle:  (*call).buildImage,
	}}
}

// logShown bounds the end of a build's log in an answer, in bytes.
const logShown = 4 << 10

type builtResult struct {
	Image  string `json:"image"`
	Digest string `json:"digest"`
	Log    string `json:"log,omitempty"`
}

func (c *call) buildImage() (*sdk.CallToolResult, error) {
	text, err := c.args.required("containerfile")
	if err != nil {
		return nil, err
	}
	r, err := c.sandboxRequest("package-managers")
	if err != nil {
		return nil, err
	}
	r.Run.Stdin = text
	if len(r.Secrets) > 0 {
		return nil, errors.New("secrets: a build gets none")
	}
	limit, err := c.timeLimit()
	if err != nil {
		return nil, err
	}
	if r.Create.Spec.Limits.Disk == 0 {
		r.Create.Spec.Limits.Disk = runner.DefaultDisk // a build has no default of its own
	}
	if limit <= 0 {
		limit = runner.Longest
	}
	ctx, cancel := context.WithTimeoutCause(c.ctx, limit, fmt.Errorf("the time limit of %s is over", limit))
	defer cancel()
	watch, stop := c.watch()
	defer stop()
	image, digest, all, err := c.opts.Build(ctx, r, watch)
	if err != nil {
		return nil, err
	}
	log, _ := endOf(all, logShown, "")
	return answer(fmt.Sprintf("image: %s\ndigest: %s\nlog: %s", image, digest, log), builtResult{image, digest, log}), nil
}
