package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
)

// Files are the files of a sandbox. A relative path begins at /workspace. A missing file is ErrNotFound, and also
// fs.ErrNotExist.
type Files struct {
	*remote
	sandbox string
}

// Files returns the files of a sandbox.
func (c *Client) Files(sandbox string) Files { return Files{c.remote, sandbox} }

// about performs an operation whose answer is in an envelope.
func about[T any](f Files, ctx context.Context, verb, path string, in any) (*T, error) {
	e, err := got[Envelope[T]](f.remote, ctx, verb, http.MethodPost, at(f.sandbox, path), nil, in)
	if err != nil {
		return nil, err
	}
	return &e.Data, nil
}

// Download returns the content of a file of any size. The caller closes it. If the server cannot read the file to its end,
// the reader ends with another error than io.EOF.
func (f Files) Download(ctx context.Context, path string) (io.ReadCloser, error) {
	return f.bytes(ctx, "/files/raw", path)
}

// Archive returns a file or directory as a tar, without its links. The caller closes it.
func (f Files) Archive(ctx context.Context, path string) (io.ReadCloser, error) {
	return f.bytes(ctx, "/files/archive", path)
}

func (f Files) bytes(ctx context.Context, route, path string) (io.ReadCloser, error) {
	resp, err := f.send(ctx, http.MethodGet, at(f.sandbox, route), query{"path": path}, nil)
	if err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	return resp.Body, nil
}

// Read returns the content of a file of at most ReadMost bytes. A larger one is ErrTooLarge.
func (f Files) Read(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := f.Download(ctx, path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := readLimited(r, ReadMost)
	if err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	return b, nil
}

// Write replaces a file, and makes missing directories.
func (f Files) Write(ctx context.Context, path string, content []byte) (*File, error) {
	return f.Upload(ctx, path, bytes.NewReader(content))
}

// Upload is Write for content of any size. A failed upload leaves the file as it was.
func (f Files) Upload(ctx context.Context, path string, content io.Reader) (*File, error) {
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

// Edit replaces a passage of a text file. old must occur once.
func (f Files) Edit(ctx context.Context, path, old, new string) (*Edited, error) {
	return about[Edited](f, ctx, "edit file", "/files/edit", EditRequest{PathRequest: PathRequest{path}, Old: old, New: new})
}

// List returns the entries of a directory, and of those below it down to a depth; 0: only the entries.
func (f Files) List(ctx context.Context, dir string, depth int) ([]File, error) {
	all, err := about[[]File](f, ctx, "list files", "/files/list", ListRequest{Path: dir, Depth: depth})
	if err != nil {
		return nil, err
	}
	return *all, nil
}

// Stat describes a file.
func (f Files) Stat(ctx context.Context, path string) (*File, error) {
	e, err := about[Exists](f, ctx, "stat file", "/files/exists", PathRequest{path})
	if err != nil {
		return nil, err
	}
	if e.File == nil {
		return nil, fmt.Errorf("stat file: %w", &Error{Code: http.StatusNotFound, Message: fmt.Sprintf("no such file: %q", path)})
	}
	return e.File, nil
}

// Mkdir makes a directory with its parents.
func (f Files) Mkdir(ctx context.Context, path string) (*File, error) {
	return about[File](f, ctx, "make directory", "/files/mkdir", PathRequest{path})
}

// Move renames a file or a directory.
func (f Files) Move(ctx context.Context, from, to string) (*File, error) {
	return about[File](f, ctx, "move file", "/files/move", TwoPaths{from, to})
}

// Copy copies a file or a directory.
func (f Files) Copy(ctx context.Context, from, to string) (*File, error) {
	return about[File](f, ctx, "copy file", "/files/copy", TwoPaths{from, to})
}

// Remove removes a file, or a directory with what is in it.
func (f Files) Remove(ctx context.Context, path string) error {
	_, err := about[Exists](f, ctx, "remove file", "/files/delete", PathRequest{path})
	return err
}

// Glob finds files by a pattern of their path.
func (f Files) Glob(ctx context.Context, q GlobRequest) (*Paths, error) {
	return about[Paths](f, ctx, "find files", "/files/glob", q)
}

// Grep finds lines of files.
func (f Files) Grep(ctx context.Context, q GrepRequest) (*Matches, error) {
	return about[Matches](f, ctx, "search files", "/grep", q)
}
