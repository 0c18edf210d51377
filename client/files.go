package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
)

// files are the files of one sandbox.
type files struct {
	*remote
	sandbox string
}

func (c *remote) Files(sandbox string) Files { return files{c, sandbox} }

// about performs an operation whose answer is in an envelope.
func about[T any](f files, ctx context.Context, verb, path string, in any) (*T, error) {
	e, err := got[Envelope[T]](f.remote, ctx, verb, http.MethodPost, at(f.sandbox, path), nil, in)
	if err != nil {
		return nil, err
	}
	return &e.Data, nil
}

func (f files) Download(ctx context.Context, path string) (io.ReadCloser, error) {
	resp, err := f.send(ctx, http.MethodGet, at(f.sandbox, "/files/raw"), query{"path": path}, nil)
	if err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	return resp.Body, nil
}

func (f files) Read(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := f.Download(ctx, path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := readMost(r, ReadMost)
	if err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	return b, nil
}

func (f files) Write(ctx context.Context, path string, content []byte) (*File, error) {
	return f.Upload(ctx, path, bytes.NewReader(content))
}

func (f files) Upload(ctx context.Context, path string, content io.Reader) (*File, error) {
	body := &source{Reader: content}
	resp, err := f.send(ctx, http.MethodPut, at(f.sandbox, "/files/raw"), query{"path": path}, body, "Content-Type", "application/octet-stream")
	var e Envelope[File]
	if err == nil {
		err = decode(resp, &e)
	}
	if own := body.err.Load(); own != nil { // the server's error says no more
		err = *own
	}
	if err != nil {
		return nil, fmt.Errorf("write file: %w", err)
	}
	return &e.Data, nil
}

// source is a reader that keeps its error.
type source struct {
	io.Reader
	err atomic.Pointer[error]
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && err != io.EOF {
		s.err.Store(&err)
	}
	return n, err
}

func (f files) Edit(ctx context.Context, path, old, new string) (*Edited, error) {
	return about[Edited](f, ctx, "edit file", "/files/edit", EditRequest{PathRequest: PathRequest{path}, Old: old, New: new})
}

func (f files) List(ctx context.Context, dir string, depth int) ([]File, error) {
	all, err := about[[]File](f, ctx, "list files", "/files/list", ListRequest{Path: dir, Depth: depth})
	if err != nil {
		return nil, err
	}
	return *all, nil
}

func (f files) Stat(ctx context.Context, path string) (*File, error) {
	e, err := about[Exists](f, ctx, "stat file", "/files/exists", PathRequest{path})
	if err != nil {
		return nil, err
	}
	if e.File == nil {
		return nil, fmt.Errorf("stat file: %w", &Error{Code: http.StatusNotFound, Message: fmt.Sprintf("no such file: %q", path)})
	}
	return e.File, nil
}

func (f files) Mkdir(ctx context.Context, path string) (*File, error) {
	return about[File](f, ctx, "make directory", "/files/mkdir", PathRequest{path})
}

func (f files) Move(ctx context.Context, from, to string) (*File, error) {
	return about[File](f, ctx, "move file", "/files/move", TwoPaths{from, to})
}

func (f files) Copy(ctx context.Context, from, to string) (*File, error) {
	return about[File](f, ctx, "copy file", "/files/copy", TwoPaths{from, to})
}

func (f files) Remove(ctx context.Context, path string) error {
	_, err := about[Exists](f, ctx, "remove file", "/files/delete", PathRequest{path})
	return err
}

func (f files) Glob(ctx context.Context, q GlobRequest) (*Paths, error) {
	return about[Paths](f, ctx, "find files", "/files/glob", q)
}

func (f files) Grep(ctx context.Context, q GrepRequest) (*Matches, error) {
	return about[Matches](f, ctx, "search files", "/grep", q)
}
