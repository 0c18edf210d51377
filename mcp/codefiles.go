package mcp

import (
	"encoding/base64"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/kernels/code"
	"demesne/runner/files"
	"demesne/session"
)

// maxTransfers bounds the files of one call.
const maxTransfers = 100

// transfer is the outcome of one file of import_files or export_files.
type transfer struct {
	Source      string `json:"source"`
	Destination string `json:"destination,omitempty"`
	Success     bool   `json:"success"`
	Size        int64  `json:"size"`
	Path        string `json:"path,omitempty"`         // of the host
	URL         string `json:"download_url,omitempty"` // of the resource with the content
	Error       string `json:"error,omitempty"`
}

// transferred is the result of both tools.
type transferred struct {
	Success bool       `json:"success"`
	Files   []transfer `json:"files"`
	Error   string     `json:"error,omitempty"`
}

func transferFields(more ...property) map[string]any {
	rows := append([]property{field("source", "string", "").must(), field("success", "boolean", "").must(), field("size", "integer", "bytes of data").must(),
		field("error", "string", "")}, more...)
	return results(field("success", "boolean", "all files were copied").must(), arrayOf("files", "in the order of the call", rows...).must(), field("error", "string", ""), warningField)
}

// itemsOf returns a required list of objects with these properties.
func itemsOf(name, description string, of ...property) property {
	return field(name, "array", description).with("items", arguments(of...)).must()
}

func (s *Server) importTool() tool {
	return tool{
		name: "import_files",
		description: "Copy files into a session: from the host, from another of your sessions, or as text. " +
			"A failure of one file does not stop the others.",
		in: arguments(sessionField, itemsOf("files", "",
			field("source", "string", "Host file or directory, absolute, in a mount root.").also("The roots: "+s.opts.Mounts.String()+"."),
			field("session_id", "string", "Other session, with path."), field("path", "string", "Path in it."),
			field("file_name", "string", "Name of a new file, with file_content."), field("file_content", "string", ""),
			field("encoding", "string", "Of file_content.").with("enum", []string{"text", "base64"}).with("default", "text"),
			field("destination", "string", "Path in the session, absolute or below /out. Default: the name, in /out."))),
		out:    transferFields(field("destination", "string", "path in the session")),
		hints:  hints{destructive: true, idempotent: true},
		handle: (*call).importFiles,
	}
}

// transfers reads the argument files: a list of objects, or of texts, which mean their source.
func (c *call) transfers() (list []args, err error) {
	all, ok := c.args["files"].([]any)
	switch {
	case !ok:
		return nil, errors.New("files must be an array of objects")
	case len(all) == 0:
		return nil, errors.New("files is empty")
	case len(all) > maxTransfers:
		return nil, fmt.Errorf("files: %d are more than %d in one call", len(all), maxTransfers)
	}
	for i, v := range all {
		switch v := v.(type) {
		case map[string]any:
			list = append(list, v)
		case string:
			list = append(list, args{"source": v})
		default:
			return nil, fmt.Errorf("files[%d] is not an object", i)
		}
	}
	return list, nil
}

// each calls one with each file of the call, and collects the outcomes.
func (c *call) each(one func(s *code.SessionInfo, w session.Callbacks, f args) transfer) (*sdk.CallToolResult, error) {
	s, err := c.sessionOf()
	if err != nil {
		return nil, err
	}
	list, err := c.transfers()
	if err != nil {
		return nil, err
	}
	watch, stop := c.watch()
	defer stop()
	out := transferred{Success: true, Files: []transfer{}}
	var text strings.Builder
	failed := 0
	for _, f := range list {
		t := one(s, watch, f)
		out.Files = append(out.Files, t)
		if t.Success = t.Error == ""; !t.Success {
			out.Success = false
			failed++
			fmt.Fprintf(&text, "failed: %s: %s\n", t.Source, t.Error)
		} else {
			fmt.Fprintf(&text, "copied: %s -> %s (%d bytes)\n", t.Source, t.Destination+t.Path, t.Size)
		}
		out.Files[len(out.Files)-1] = t
	}
	if failed > 0 {
		out.Error = fmt.Sprintf("%d of %d files failed", failed, len(list))
	}
	r := answer(text.String(), out)
	r.IsError = failed == len(list)
	return r, nil
}

func (c *call) importFiles() (*sdk.CallToolResult, error) {
	return c.each(func(s *code.SessionInfo, w session.Callbacks, f args) transfer {
		switch {
		case f.text("file_name") != "":
			return c.importText(s, f)
		case f.text("session_id") != "":
			return c.importAcross(s, w, f)
		case f.text("source") != "":
			return c.importHost(s, w, f)
		}
		return transfer{Error: "source, or session_id with path, or file_name with file_content is required"}
	})
}

// placeIn returns the path in a session for a copy of something with that name.
func placeIn(destination, name string) string {
	switch {
	case destination == "":
		destination = name
	case strings.HasSuffix(destination, "/"):
		destination += name
	}
	if !path.IsAbs(destination) {
		destination = path.Join("/out", destination)
	}
	return path.Clean(destination)
}

func (c *call) importText(s *code.SessionInfo, f args) transfer {
	t := transfer{Source: f.text("file_name"), Destination: placeIn(f.text("destination"), f.text("file_name"))}
	content := []byte(f.text("file_content"))
	var err error
	switch f.text("encoding") {
	case "", "text", "utf-8":
	case "base64":
		if content, err = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(content)), "")); err != nil {
			err = fmt.Errorf("file_content is not base64: %w", err)
		}
	default:
		err = fmt.Errorf("encoding %s is not text or base64", clipped(f.text("encoding")))
	}
	if _, isText := f["file_content"].(string); !isText {
		err = errors.New("file_content is required")
	}
	q := files.Request{Write: &files.Write{Path: t.Destination, Content: content}}
	if err == nil {
		err = q.Check()
	}
	if err == nil {
		_, err = c.engine.Files(c.ctx, s.Sandbox, q)
	}
	return t.ended(int64(len(content)), err)
}

func (c *call) importHost(s *code.SessionInfo, w session.Callbacks, f args) transfer {
	t := transfer{Source: f.text("source")}
	real, _, err := c.opts.Mounts.resolve(t.Source)
	if err != nil {
		return t.ended(0, err)
	}
	t.Destination = placeIn(f.text("destination"), filepath.Base(filepath.Clean(t.Source)))
	did, err := c.engine.Upload(c.ctx, s.Sandbox, real, t.Destination, w)
	return t.ended(did.Bytes, err)
}

func (c *call) importAcross(s *code.SessionInfo, w session.Callbacks, f args) transfer {
	src := placeIn("", f.text("path"))
	t := transfer{Source: f.text("session_id") + ":" + src}
	if f.text("path") == "" {
		return t.ended(0, errors.New("path is required"))
	}
	from, err := c.opts.Code.Session(c.owner(), f.text("session_id"))
	if err != nil {
		return t.ended(0, fmt.Errorf("%w; %s", err, c.liveSessions()))
	}
	t.Destination = placeIn(f.text("destination"), path.Base(src))
	did, err := c.engine.CopyBetween(c.ctx, from.Sandbox, src, s.Sandbox, t.Destination, w)
	return t.ended(did.Bytes, err)
}

// ended completes the outcome of one file.
func (t transfer) ended(size int64, err error) transfer {
	if err != nil {
		t.Error, t.Destination = strings.ToValidUTF8(err.Error(), "\uFFFD"), ""
		return t
	}
	t.Size = size
	return t
}

func exportTool() tool {
	return tool{
		name:        "export_files",
		description: "Copy files or directories of a session to the host, and get their paths there. Not needed for /out, which is output_dir.",
		in: arguments(sessionField, itemsOf("files", "",
			field("source", "string", "Path in the session, absolute or below /out.").must())),
		out:    transferFields(field("path", "string", "path of the copy, on the host"), field("download_url", "string", "URI of a copied file, for resources/read")),
		hints:  hints{readOnly: true, idempotent: true},
		handle: (*call).exportFiles,
	}
}

func (c *call) exportFiles() (*sdk.CallToolResult, error) {
	taken := map[string]string{}
	return c.each(func(s *code.SessionInfo, w session.Callbacks, f args) transfer {
		src := f.text("source")
		if src == "" {
			src = f.text("path")
		}
		t := transfer{Source: src}
		if src == "" {
			return t.ended(0, errors.New("source is required"))
		}
		src = placeIn("", src)
		name := path.Base(src)
		if other := taken[name]; other != "" && other != src { // a later copy replaces one of the same name
			return t.ended(0, fmt.Errorf("%s of this call has the name %s too: export them one after the other", other, clipped(name)))
		}
		taken[name] = src
		did, err := c.engine.Download(c.ctx, s.Sandbox, src, w)
		if err == nil {
			t.Path, t.URL = did.Path, c.outputs.uri(did.Path)
		}
		return t.ended(did.Bytes, err)
	})
}
