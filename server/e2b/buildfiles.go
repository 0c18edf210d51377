package e2b

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strings"

	"demesne/server"
	"demesne/session"
)

// templateFile answers whether the files of a COPY are here, and where to send them. The address has a token of its own,
// because the SDK sends no key with it.
func (s *builds) templateFile(w http.ResponseWriter, r *http.Request) error {
	id, hash := r.PathValue("id"), r.PathValue("hash")
	s.store.mu.Lock()
	t := s.store.templates[id]
	s.store.mu.Unlock()
	if t == nil || !hashForm.Get().MatchString(hash) {
		return refusal{http.StatusNotFound, "template or hash not found"}
	}
	_, err := s.store.dir.Stat(path.Join(uploadDir, id, hash))
	return answer(w, http.StatusCreated, map[string]any{
		"present": err == nil, "url": fmt.Sprintf("http://%s/templatefiles/%s/%s/%s", r.Host, s.ticket(id, hash), id, hash),
	})
}

// ticket is the token of one upload.
func (s *builds) ticket(id, hash string) string { return digest("upload", s.opts.Key, id, hash) }

// serveUpload receives the files of a COPY: /templatefiles/TICKET/TEMPLATE/HASH.
func (s *builds) serveUpload(w http.ResponseWriter, r *http.Request) {
	ticket, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/templatefiles/"), "/")
	id, hash, _ := strings.Cut(rest, "/")
	if s.opts.Access.Check(w, r, ticket, func() bool {
		return r.Method == http.MethodPut && hashForm.Get().MatchString(hash) && server.Same(ticket, s.ticket(id, hash))
	}, func() {
		fail(w, errUnexpected)
	}) {
		if err := s.receive(w, r, id, hash); err != nil {
			fail(w, err)
		}
	}
}

var errUnexpected = refusal{http.StatusUnauthorized, "no upload is expected here"}

// receive stores the files of a COPY.
func (s *builds) receive(w http.ResponseWriter, r *http.Request, id, hash string) error {
	if !s.store.hasTemplate(id) { // it was removed, or is another namespace's
		return errUnexpected
	}
	dir, size := path.Join(uploadDir, id), Stored{Bytes: entryCost, Files: 1}
	if err := s.store.ledger.take(size); err != nil {
		return err
	}
	err := s.store.dir.MkdirAll(dir, 0o700)
	tmp := path.Join(dir, ".new-"+newID())
	var f *os.File
	if err == nil {
		f, err = s.store.dir.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if err == nil {
		_, err = io.Copy(metered{f, func(n int64) error {
			err := s.store.ledger.take(Stored{Bytes: n})
			if err == nil {
				size.Bytes += n
			}
			return err
		}}, http.MaxBytesReader(w, r.Body, server.MaxContext))
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		err = s.keep(id, hash, tmp, size)
	}
	if err != nil {
		s.store.dir.Remove(tmp)
		s.store.ledger.add(size.negative())
		return err
	}
	w.Header().Set("Content-Length", "0")
	return nil
}

// keep gives an upload its name, in place of an earlier one.
func (s *builds) keep(id, hash, tmp string, size Stored) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.store.hasTemplate(id) {
		return fmt.Errorf("%w: the template was removed", session.ErrNotFound)
	}
	name := path.Join(uploadDir, id, hash)
	if err := s.store.dir.Rename(tmp, name); err != nil {
		return err
	}
	if s.uploads == nil {
		s.uploads = map[string]map[string]Stored{}
	}
	if s.uploads[id] == nil {
		s.uploads[id] = map[string]Stored{}
	}
	s.store.ledger.add(s.uploads[id][hash].negative())
	s.uploads[id][hash] = size
	return nil
}

// forgetTemplate removes the uploads of a template that was removed.
func (s *builds) forgetTemplate(t *template) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(t.ID)
}

// drop removes the uploads of a template. An upload that is still being received keeps its own file. mu is held.
func (s *builds) drop(id string) {
	for hash, size := range s.uploads[id] {
		if err := s.store.dir.Remove(path.Join(uploadDir, id, hash)); err == nil || errors.Is(err, os.ErrNotExist) {
			s.store.ledger.add(size.negative())
			delete(s.uploads[id], hash)
		}
	}
	if len(s.uploads[id]) == 0 {
		delete(s.uploads, id)
	}
	s.store.dir.Remove(path.Join(uploadDir, id))
}

// forgetUploads removes the files of a template's steps once no other build of it needs them: the SDK sends them again.
func (s *builds) forgetUploads(b *build) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.all {
		o.mu.Lock()
		needs := o != b && o.template == b.template && (o.status == "waiting" || o.status == "building")
		o.mu.Unlock()
		if needs {
			return
		}
	}
	s.drop(b.template.ID)
}
