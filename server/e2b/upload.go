package e2b

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"demesne/runner/fileops"
	"demesne/server"
	"demesne/session"
)

// signed reports whether the URL of a request for /files has a signature made with the sandbox's token that is valid now.
func (e *entry) signed(r *http.Request, now time.Time) bool {
	q := r.URL.Query()
	op := map[string]string{http.MethodGet: "read", http.MethodPost: "write"}[r.Method]
	got, ok := strings.CutPrefix(q.Get("signature"), "v1_")
	if !ok || op == "" {
		return false
	}
	text := strings.Join([]string{q.Get("path"), op, q.Get("username"), e.rec.Token}, ":")
	if until := q.Get("signature_expiration"); until != "" {
		if expired(r, now) {
			return false
		}
		text += ":" + until
	}
	sum := sha256.Sum256([]byte(text))
	want := base64.RawStdEncoding.EncodeToString(sum[:])
	return server.Same(strings.TrimRight(strings.ReplaceAll(got, " ", "+"), "="), want)
}

// expired reports whether the signature of a request has an end that is over, or that is not a time.
func expired(r *http.Request, now time.Time) bool {
	until := r.URL.Query().Get("signature_expiration")
	n, err := strconv.ParseInt(until, 10, 64)
	return until != "" && (err != nil || now.Unix() > n)
}

// serveSigned serves a signed URL. It names no sandbox, so the one is found whose token made the signature.
func (s *Server) serveSigned(w http.ResponseWriter, r *http.Request) {
	var e *entry
	find := func() bool { e = s.store.signer(r); return e != nil }
	if s.opts.Access.Check(w, r, signatureOf(r), find, func() {
		text := "invalid signature"
		if expired(r, time.Now()) {
			text = "signature is already expired"
		}
		server.Refuse(w, http.StatusUnauthorized, text)
	}) {
		s.serveSandbox(w, r, e.rec.ID, portEnvd)
	}
}

// download sends a file.
func (s *Server) download(w http.ResponseWriter, r *http.Request) {
	e, q, began := entryOf(r.Context()), r.URL.Query(), false
	err := e.file(r.Context(), q.Get("username"), fileops.Request{Op: fileops.OpGet, Path: q.Get("path")}, nil,
		func(a *fileops.Answer, from *bufio.Reader) error {
			if began {
				return errInterrupted
			}
			began = true
			name := "file"
			if len(a.Infos) == 1 {
				name = path.Base(a.Infos[0].Path)
			}
			h := w.Header()
			h.Set("Content-Type", "application/octet-stream") // never a type that a browser would execute
			h.Set("X-Content-Type-Options", "nosniff")
			h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
			return send(w, from)
		})
	switch {
	case err != nil && began:
		panic(http.ErrAbortHandler) // the client must see that the file is not complete
	case err != nil:
		server.Refuse(w, fileStatus(err), err.Error())
	}
}

// send sends the content of a file. A small one has its length in the headers and goes in one packet with them: that is
// faster than chunks.
func send(w http.ResponseWriter, from *bufio.Reader) error {
	all, err := from.Peek(from.Size())
	if !errors.Is(err, io.EOF) {
		_, err = io.Copy(w, from)
		return err
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(all)))
	n, err := w.Write(all)
	from.Discard(n)
	return err
}

// file performs an operation on a file as a user.
func (e *entry) file(ctx context.Context, name string, t fileops.Request, from func(io.Writer) error, to func(*fileops.Answer, *bufio.Reader) error) error {
	a, err := e.account(ctx, name)
	if err != nil {
		return err
	}
	user, t := a.files(t)
	return e.with(ctx, func(sb server.Sandbox) error {
		_, err := sb.Tree(ctx, user, a.home, t, from, to)
		return err
	})
}

// written is a file in the answer to an upload.
type written struct {
	Name     string            `json:"name"`
	Path     string            `json:"path"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// upload writes files.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) {
	all, err := s.receive(r)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%w: the request has no file", session.ErrInvalid)
	}
	if err != nil {
		server.Refuse(w, fileStatus(err), err.Error())
		return
	}
	answer(w, http.StatusOK, all)
}

func (s *Server) receive(r *http.Request) ([]written, error) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil && r.Header.Get("Content-Type") != "" {
		return nil, fmt.Errorf("%w: Content-Type: %w", session.ErrInvalid, err)
	}
	in := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		if in, err = gzip.NewReader(r.Body); err != nil {
			return nil, fmt.Errorf("%w: the body is not gzip", session.ErrInvalid)
		}
	}
	meta, where := metadataHeaders(r.Header), r.URL.Query().Get("path")
	if kind == "multipart/form-data" {
		return s.parts(r, multipart.NewReader(in, params["boundary"]), where, meta)
	}
	f, err := put(r, where, meta, in)
	if err != nil {
		return nil, err
	}
	return []written{f}, nil
}

// parts writes the files of a form, each while it arrives.
func (s *Server) parts(r *http.Request, form *multipart.Reader, where string, meta map[string]string) (all []written, err error) {
	for {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: read form: %w", session.ErrInvalid, err)
		}
		if part.FormName() != "file" {
			continue
		}
		to := where
		if to == "" {
			to = fileName(part)
		}
		if where != "" && len(all) > 0 {
			return nil, fmt.Errorf("%w: several files for one path", session.ErrInvalid)
		}
		f, err := put(r, to, meta, part)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
}

// fileName returns the name of a part, which is a path. Part.FileName would drop the directories.
func fileName(p *multipart.Part) string {
	_, params, err := mime.ParseMediaType(p.Header.Get("Content-Disposition"))
	if err != nil {
		return ""
	}
	return params["filename"]
}

func put(r *http.Request, where string, meta map[string]string, in io.Reader) (f written, err error) {
	if where == "" {
		return f, fmt.Errorf("%w: path is required", session.ErrInvalid)
	}
	t := fileops.Request{Op: fileops.OpPut, Path: where, Meta: meta}
	var broken error
	read := false // by an attempt that the end of a runner interrupted: the body cannot be read again
	err = entryOf(r.Context()).file(r.Context(), r.URL.Query().Get("username"), t,
		func(to io.Writer) error {
			if read {
				return errInterrupted
			}
			read = true
			_, err := io.Copy(to, reading{in, &broken})
			return err
		},
		func(a *fileops.Answer, _ *bufio.Reader) error {
			if len(a.Infos) == 1 {
				f = written{path.Base(a.Infos[0].Path), a.Infos[0].Path, "file", a.Infos[0].Meta}
			}
			return nil
		})
	if broken != nil {
		err = fmt.Errorf("%w: read body: %w", session.ErrInvalid, broken)
	}
	return f, err
}

// errInterrupted means that the sandbox ended while a file was copied.
var errInterrupted = errors.New("the sandbox ended during the copy")

// reading remembers why a client's body could not be read.
type reading struct {
	io.Reader
	broken *error
}

func (r reading) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		*r.broken = err
	}
	return n, err
}

// metadataHeaders returns the metadata in the headers of an upload.
func metadataHeaders(h http.Header) map[string]string {
	var m map[string]string
	for k, v := range h {
		if key, ok := strings.CutPrefix(strings.ToLower(k), "x-metadata-"); ok && key != "" && len(v) > 0 {
			if m == nil {
				m = map[string]string{}
			}
			m[key] = v[0]
		}
	}
	return m
}

// digest is a token made from secret words.
func digest(words ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
