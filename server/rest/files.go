package rest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"demesne/client"
	"demesne/runner/fileops"
	"demesne/runner/files"
)

// maxContent bounds the content of a file in a JSON answer.
const maxContent = 8 << 20

// maxFileBody bounds the body of a write in bytes. The content may be in base64.
const maxFileBody = maxContent*4/3 + 1<<20

// fileAPI has the handlers of files.
type fileAPI struct{ *Server }

func (s *Server) fileRoutes() {
	h := fileAPI{s}
	inFile(s, "read", "Read a file", h.readFile)
	inFile(s, "write", "Write a file", h.writeFile)
	inFile(s, "edit", "Replace a passage of a file", h.editFile)
	inFile(s, "list", "List a directory", h.listFiles)
	inFile(s, "mkdir", "Make a directory, with its parents", h.makeDir)
	inFile(s, "delete", "Delete a file, or a directory with what is in it", h.deleteFile)
	inFile(s, "move", "Move a file or directory", h.moveFile)
	inFile(s, "copy", "Copy a file or directory", h.copyFile)
	inFile(s, "exists", "Look whether a file exists", h.fileExists)
	inFile(s, "glob", "Find files by name", h.globFiles)
	route(s, operation("grep", http.MethodPost, "/sandboxes/{id}/grep", "Files", "Find lines in files"), h.grepFiles)
	raw := operation("get-file", http.MethodGet, "/sandboxes/{id}/files/raw", "Files", "Download a file, of any size")
	raw.Responses = binary("The file")
	huma.Register(s.api, raw, h.download)
	tree := operation("get-archive", http.MethodGet, "/sandboxes/{id}/files/archive", "Files", "Download a file or directory as a tar, without its links")
	tree.Responses = binary("The tar")
	huma.Register(s.api, tree, h.archive)
	put := operation("put-file", http.MethodPut, "/sandboxes/{id}/files/raw", "Files", "Upload a file, of any size")
	put.RequestBody = &huma.RequestBody{Required: true, Content: binary("")["200"].Content}
	put.SkipValidateBody = true
	put.Middlewares = append(put.Middlewares, h.withBody)
	answers(s, put, h.upload)
}

// binary describes an answer that is a file.
func binary(what string) map[string]*huma.Response {
	return map[string]*huma.Response{"200": {Description: what, Content: map[string]*huma.MediaType{
		"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
	}}}
}

// inFile registers a route of files.
func inFile[Q, A any](s *Server, verb, summary string, f func(context.Context, string, *Q) (A, error)) {
	op := operation(verb+"-file", http.MethodPost, "/sandboxes/{id}/files/"+verb, "Files", summary)
	op.MaxBodyBytes = maxFileBody
	route(s, op, f)
}

// route registers a route whose answer is an envelope. f gets the id of a sandbox that the caller may use.
func route[Q, A any](s *Server, op huma.Operation, f func(context.Context, string, *Q) (A, error)) {
	answers(s, op, func(ctx context.Context, in *inSandbox[Q]) (e client.Envelope[A], err error) {
		if err := target(in.ID); err != nil {
			return e, err
		}
		a, err := f(ctx, in.ID, &in.Body)
		return client.Envelope[A]{Message: "success", Data: a}, err
	})
}

// workspace is where relative paths begin.
const workspace = "/workspace"

// at makes the path of a request absolute. The kernel of the sandbox resolves it.
func at(name string) string {
	if path.IsAbs(name) {
		return name
	}
	return workspace + "/" + name
}

// tree performs an operation on files.
func (s fileAPI) tree(ctx context.Context, id string, t fileops.Request, from func(io.Writer) error, to func(*fileops.Answer, *bufio.Reader) error) (*fileops.Answer, error) {
	sb, err := s.service(ctx).Open(ctx, id)
	if err != nil {
		return nil, err
	}
	return sb.Tree(ctx, nil, "/", t, from, to)
}

// about performs an operation whose answer describes one file.
func (s fileAPI) about(ctx context.Context, id string, t fileops.Request) (client.File, error) {
	return oneFile(s.tree(ctx, id, t, nil, nil))
}

// oneFile returns the file that an answer of an operation describes.
func oneFile(a *fileops.Answer, err error) (f client.File, _ error) {
	if err != nil {
		return f, err
	}
	if len(a.Infos) != 1 {
		return f, errors.New("the sandbox described no file")
	}
	return fileOf(a.Infos[0]), nil
}

func fileOf(i fileops.Info) client.File {
	f := client.File{
		Name: path.Base(i.Path), Path: i.Path, Type: i.Type, IsDir: i.Type == "directory", Size: i.Size, Mode: i.Text,
		Owner: i.Owner, Group: i.Group, ModTime: i.Modified.Unix(), Target: i.Target,
	}
	if y := i.Modified.Year(); y >= 1 && y <= 9999 { // others have no JSON
		f.Modified = i.Modified
	}
	return f
}

func (s fileAPI) readFile(ctx context.Context, id string, q *client.ReadRequest) (c client.Content, err error) {
	var b bytes.Buffer
	most := int64(maxContent)
	if q.Limit > 0 {
		most = min(most, q.Limit)
	}
	_, err = s.tree(ctx, id, fileops.Request{Op: fileops.OpGet, Path: at(q.Path)}, nil, func(a *fileops.Answer, from *bufio.Reader) error {
		b.Reset()
		if len(a.Infos) == 1 {
			c.Path, c.Size = a.Infos[0].Path, a.Infos[0].Size
		}
		if _, err := io.CopyN(io.Discard, from, q.Offset); err != nil {
			return ignoreEOF(err)
		}
		_, err := io.CopyN(&b, from, most)
		if err == nil {
			_, err = from.ReadByte()
			c.Cut = err == nil
		}
		if c.Cut {
			return errEnough
		}
		return ignoreEOF(err)
	})
	if err != nil && !errors.Is(err, errEnough) {
		return c, err
	}
	if c.Base64 = q.Base64 || !utf8.Valid(b.Bytes()); c.Base64 {
		c.Content = base64.StdEncoding.EncodeToString(b.Bytes())
	} else {
		c.Content = b.String()
	}
	return c, nil
}

// errEnough ends an operation whose rest is not needed.
var errEnough = errors.New("enough")

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (s fileAPI) writeFile(ctx context.Context, id string, q *client.WriteRequest) (client.File, error) {
	content := []byte(q.Content)
	if q.Base64 {
		var err error
		if content, err = base64.StdEncoding.DecodeString(q.Content); err != nil {
			return client.File{}, refused("content", "not base64")
		}
	}
	return s.putStream(ctx, id, at(q.Path), func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

func (s fileAPI) putStream(ctx context.Context, id, name string, from func(io.Writer) error) (client.File, error) {
	return oneFile(s.tree(ctx, id, fileops.Request{Op: fileops.OpPut, Path: name}, from, nil))
}

// small performs an operation of package files. Its errors are the request's fault, or the sandbox's.
func (s fileAPI) small(ctx context.Context, id string, r files.Request) (*files.Answer, error) {
	a, err := s.service(ctx).Files(ctx, id, r)
	if err != nil && statusOf(err) == http.StatusInternalServerError {
		return nil, problem(http.StatusBadRequest, err.Error())
	}
	return a, err
}

// errAnswer means that a sandbox answered with something else than was asked for.
var errAnswer = errors.New("the sandbox sent no reply")

func (s fileAPI) editFile(ctx context.Context, id string, q *client.EditRequest) (e client.Edited, err error) {
	a, err := s.small(ctx, id, files.Request{Edit: &files.Edit{Path: at(q.Path), Old: q.Old, New: q.New, All: q.All}})
	switch {
	case err != nil:
		return e, err
	case a.Edited == nil:
		return e, errAnswer
	}
	return client.Edited{Replaced: a.Edited.Replaced, Line: a.Edited.Line}, nil
}

func (s fileAPI) listFiles(ctx context.Context, id string, q *client.ListRequest) ([]client.File, error) {
	a, err := s.tree(ctx, id, fileops.Request{Op: fileops.OpList, Path: at(q.Path), Depth: max(q.Depth, 1)}, nil, nil)
	all := []client.File{}
	if err == nil {
		for _, i := range a.Infos {
			all = append(all, fileOf(i))
		}
	}
	return all, err
}

func (s fileAPI) makeDir(ctx context.Context, id string, q *client.PathRequest) (client.File, error) {
	return s.about(ctx, id, fileops.Request{Op: fileops.OpMkdir, Path: at(q.Path)})
}

func (s fileAPI) moveFile(ctx context.Context, id string, q *client.TwoPaths) (client.File, error) {
	return s.about(ctx, id, fileops.Request{Op: fileops.OpMove, Path: at(q.Source), To: at(q.Destination)})
}

func (s fileAPI) copyFile(ctx context.Context, id string, q *client.TwoPaths) (f client.File, err error) {
	if err := s.service(ctx).Copy(ctx, id, at(q.Source), at(q.Destination)); err != nil {
		return f, err
	}
	to := at(q.Destination)
	if strings.HasSuffix(to, "/") {
		to += path.Base(path.Clean(q.Source))
	}
	return s.about(ctx, id, fileops.Request{Op: fileops.OpStat, Path: to})
}

func (s fileAPI) deleteFile(ctx context.Context, id string, q *client.PathRequest) (e client.Exists, err error) {
	if _, err = s.about(ctx, id, fileops.Request{Op: fileops.OpStat, Path: at(q.Path)}); err != nil {
		return e, err
	}
	_, err = s.tree(ctx, id, fileops.Request{Op: fileops.OpRemove, Path: at(q.Path)}, nil, nil)
	return e, err
}

func (s fileAPI) fileExists(ctx context.Context, id string, q *client.PathRequest) (e client.Exists, err error) {
	f, err := s.about(ctx, id, fileops.Request{Op: fileops.OpStat, Path: at(q.Path)})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return e, nil
	case err != nil:
		return e, err
	}
	return client.Exists{Exists: true, File: &f}, nil
}

func (s fileAPI) globFiles(ctx context.Context, id string, q *client.GlobRequest) (p client.Paths, err error) {
	a, err := s.small(ctx, id, files.Request{Glob: &files.Glob{Path: at(q.Path), Pattern: q.Pattern}})
	switch {
	case err != nil:
		return p, err
	case a.Entries == nil:
		return p, errAnswer
	}
	p.Paths, p.Cut = []string{}, a.Entries.Cut
	for _, e := range a.Entries.Entries {
		p.Paths = append(p.Paths, e.Path)
	}
	return p, nil
}

// maxMatches is the number of lines of a search that names no limit.
const maxMatches = 1000

func (s fileAPI) grepFiles(ctx context.Context, id string, q *client.GrepRequest) (m client.Matches, err error) {
	a, err := s.small(ctx, id, files.Request{Grep: &files.Grep{
		Path: at(q.Path), Pattern: q.Pattern, Glob: q.Glob, IgnoreCase: q.IgnoreCase, Context: q.Context, Mode: files.Mode(q.Mode), Most: cmp.Or(q.Limit, maxMatches),
	}})
	switch {
	case err != nil:
		return m, err
	case a.Matches == nil:
		return m, errAnswer
	}
	m.Matches, m.Cut = a.Matches.Total, a.Matches.Cut
	var b strings.Builder
	for _, l := range a.Matches.Lines {
		if q.MaxLine > 0 && len(l.Text) > q.MaxLine {
			l.Text, m.Cut = strings.ToValidUTF8(l.Text[:q.MaxLine], ""), true
		}
		mark := ":"
		if l.Context {
			mark = "-"
		}
		fmt.Fprintf(&b, "%s%s%d%s%s\n", l.Path, mark, l.Line, mark, l.Text)
		m.Lines = append(m.Lines, client.MatchLine(l))
	}
	for _, f := range a.Matches.Files {
		b.WriteString(f.Path)
		if q.Mode == string(files.Counts) {
			fmt.Fprintf(&b, ":%d", f.Count)
		}
		b.WriteByte('\n')
		m.Files = append(m.Files, client.MatchFile(f))
	}
	m.Output = b.String()
	return m, nil
}

// rawInput names a file of a sandbox.
type rawInput struct {
	Named
	Path string `query:"path" required:"true" maxLength:"4096" doc:"A relative path begins at /workspace"`
}

// archive sends a file or directory as a tar. A failure breaks the connection, as in download.
func (s fileAPI) archive(ctx context.Context, in *rawInput) (*huma.StreamResponse, error) {
	if err := target(in.ID); err != nil {
		return nil, err
	}
	if _, err := s.about(ctx, in.ID, fileops.Request{Op: fileops.OpStat, Path: at(in.Path)}); err != nil {
		return nil, s.shown(ctx, err)
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		_, w := humago.Unwrap(hc)
		attach(hc, in.Path+".tar")
		if s.service(ctx).Archive(ctx, in.ID, at(in.Path), w) != nil {
			panic(http.ErrAbortHandler)
		}
	}}, nil
}

// download sends a file. A failure after its first byte breaks the connection, so that no client takes a part for the whole.
func (s fileAPI) download(ctx context.Context, in *rawInput) (*huma.StreamResponse, error) {
	if err := target(in.ID); err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		_, w := humago.Unwrap(hc)
		began := false
		_, err := s.tree(ctx, in.ID, fileops.Request{Op: fileops.OpGet, Path: at(in.Path)}, nil, func(a *fileops.Answer, from *bufio.Reader) error {
			if began {
				return errAnswer
			}
			began = true
			attach(hc, in.Path)
			_, err := io.Copy(w, from)
			return err
		})
		switch {
		case err != nil && began:
			panic(http.ErrAbortHandler)
		case err != nil:
			write(w, s.shown(ctx, err))
		}
	}}, nil
}

// attach marks an answer as a file of a sandbox, and never as a type that a browser would execute.
func attach(hc huma.Context, name string) {
	hc.SetHeader("Content-Type", "application/octet-stream")
	hc.SetHeader("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(name)}))
}

type bodyKey struct{}

// withBody hands the body of a request to its handler, unread.
func (s fileAPI) withBody(hc huma.Context, next func(huma.Context)) {
	next(huma.WithValue(hc, bodyKey{}, hc.BodyReader()))
}

func (s fileAPI) upload(ctx context.Context, in *rawInput) (e client.Envelope[client.File], err error) {
	if err := target(in.ID); err != nil {
		return e, err
	}
	body, _ := ctx.Value(bodyKey{}).(io.Reader)
	began := false
	f, err := s.putStream(ctx, in.ID, at(in.Path), func(w io.Writer) error {
		if began {
			return errAnswer // the bytes are gone
		}
		began = true
		_, err := io.Copy(w, body)
		return err
	})
	return client.Envelope[client.File]{Message: "success", Data: f}, err
}
