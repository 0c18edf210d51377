package mcp

import (
	"fmt"
	"path/filepath"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/session"
)

func (s *Server) upload() tool {
	return tool{
		name:        "sandbox_upload",
		description: "Copy a file or directory of the host into a sandbox. Special files are skipped.",
		more:        "They are listed. Links inside a directory are copied as links.",
		in: arguments(boxField,
			field("src", "string", "Host path in a mount root.").also("Must be absolute. sandbox_script's argument files names the roots.").must(),
			field("dst", "string", "Absolute path of the copy itself.").must(),
		),
		out: copiedFields, textual: true,
		hints:  hints{destructive: true, idempotent: true},
		handle: (*call).copyIn,
	}
}

func (c *call) copyIn() (*sdk.CallToolResult, error) {
	id, src, dst := c.args.text("sandbox_id"), c.args.text("src"), c.args.text("dst")
	if id == "" || src == "" || dst == "" {
		return nil, fmt.Errorf("sandbox_id, src, and dst are required")
	}
	real, _, err := c.opts.Mounts.resolve(src)
	if err != nil {
		return nil, err
	}
	watch, stop := c.watch()
	defer stop()
	did, err := c.engine.Upload(c.ctx, id, real, dst, watch)
	if err != nil {
		return nil, err
	}
	return copyResult(fmt.Sprintf("uploaded: %s -> %s", filepath.Base(src), dst), did), nil
}

func (s *Server) download() tool {
	return tool{
		name:        "sandbox_download",
		description: "Copy a file or directory out of a sandbox to the host. Not needed for /out, which is output_dir. Links and special files are skipped.",
		more:        "They are listed. The copy is in a new directory beside the sandbox's output_dir.",
		in:          arguments(boxField, field("src", "string", "Absolute path in it.").must()),
		out:         copiedFields, textual: true,
		hints:  hints{readOnly: true, idempotent: true},
		handle: (*call).copyOut,
	}
}

func (c *call) copyOut() (*sdk.CallToolResult, error) {
	id, src := c.args.text("sandbox_id"), c.args.text("src")
	if id == "" || src == "" {
		return nil, fmt.Errorf("sandbox_id and src are required")
	}
	watch, stop := c.watch()
	defer stop()
	did, err := c.engine.Download(c.ctx, id, src, watch)
	if err != nil {
		return nil, err
	}
	return copyResult(fmt.Sprintf("downloaded: %s -> %s", src, did.Path), did), nil
}

// copied is the result of an upload or download.
type copied struct {
	Path     string            `json:"path"`
	Files    int               `json:"files"`
	Bytes    int64             `json:"bytes"`
	Left     []session.LeftOut `json:"left_out,omitempty"`
	LeftSeen int               `json:"left_out_count,omitempty"`
}

var copiedFields = results(
	field("path", "string", "path of the copy, in the sandbox or on the host").must(),
	field("files", "integer", "number of copied files").must(),
	field("bytes", "integer", "of data, without holes in sparse files").must(),
	field("left_out", "array", "skipped files, the first 100").with("items", results(
		field("path", "string", "").must(), field("kind", "string", "such as a named pipe").must())),
	field("left_out_count", "integer", "number of skipped files"), warningField,
)

// leftShown is the maximum number of left-out files that a text names.
const leftShown = 10

func copyResult(text string, did session.Copied) *sdk.CallToolResult {
	var names []string
	for _, l := range did.Left[:min(len(did.Left), leftShown)] {
		names = append(names, fmt.Sprintf("%s (%s)", plainName(l.Path), l.Kind))
	}
	if len(names) > 0 {
		text += "\nskipped: " + strings.Join(names, ", ")
	}
	if more := did.LeftAll - len(names); more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return answer(text, copied{did.Path, did.Files, did.Bytes, did.Left, did.LeftAll})
}

// plainName returns a name, quoted if it is ambiguous. A sandbox chose the name.
func plainName(name string) string {
	if quoted := fmt.Sprintf("%q", name); quoted != `"`+name+`"` || strings.ContainsAny(name, " ,()") {
		return quoted
	}
	return name
}
