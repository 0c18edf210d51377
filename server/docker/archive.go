package docker

import (
	"archive/tar"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"demesne/runner/tarball"
)

// pathStat describes a file in a header of answers.
type pathStat struct {
	Name       string    `json:"name"`
	Size       int64     `json:"size"`
	Mode       uint32    `json:"mode"`
	Mtime      time.Time `json:"mtime"`
	LinkTarget string    `json:"linkTarget"`
}

func pathOf(r *http.Request) (string, error) {
	at := r.URL.Query().Get("path")
	if at == "" || strings.ContainsRune(at, 0) {
		return "", fail(http.StatusBadRequest, "missing path")
	}
	return path.Clean("/" + at), nil
}

var errFound = errors.New("found")

// gather reads a path of a container as a tar whose first entry is the path itself. A program in the container reads it, so
// no link leads out.
func (s *server) gather(r *http.Request, c *container, each func(h *tar.Header, content io.Reader) error) error {
	at, err := pathOf(r)
	if err != nil {
		return err
	}
	sb, err := s.use(r.Context(), c)
	if err != nil {
		return err
	}
	found := false
	dir := strings.TrimPrefix(path.Dir(at), "/")
	err = sb.Gather(r.Context(), tarball.Gathering{Paths: []string{literal(at)}}, func(from io.Reader) error {
		t := tar.NewReader(from)
		for {
			h, err := t.Next()
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
			name := strings.TrimPrefix(strings.TrimPrefix(h.Name, dir), "/")
			if dir == "." || dir == "" {
				name = h.Name
			}
			if name == "" || name == "." {
				name = "./"
			} else if h.Typeflag == tar.TypeDir {
				name = strings.TrimSuffix(name, "/") + "/"
			}
			h.Name, found, h.PAXRecords = name, true, nil
			if strings.HasPrefix(h.Linkname, dir+"/") && h.Typeflag == tar.TypeLink {
				h.Linkname = strings.TrimPrefix(h.Linkname, dir+"/")
			}
			if err := each(h, t); err != nil {
				return err
			}
		}
	})
	switch {
	case errors.Is(err, errFound):
		return nil
	case !found:
		return fail(http.StatusNotFound, "Could not find the file %.256s in container %s", at, c.id)
	}
	return err
}

// literal escapes what a pattern would match.
func literal(p string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(p)
}

// describe sets the header with the path's description.
func describe(w http.ResponseWriter, h *tar.Header) {
	info := h.FileInfo()
	text, _ := json.Marshal(pathStat{path.Base(h.Name), h.Size, uint32(info.Mode()), h.ModTime, h.Linkname})
	w.Header().Set("X-Docker-Container-Path-Stat", base64.StdEncoding.EncodeToString(text))
}

func (s *server) statArchive(w http.ResponseWriter, r *http.Request, c *container) error {
	return s.gather(r, c, func(h *tar.Header, _ io.Reader) error {
		describe(w, h)
		w.WriteHeader(http.StatusOK)
		return errFound
	})
}

func (s *server) getArchive(w http.ResponseWriter, r *http.Request, c *container) error {
	var to *tar.Writer
	err := s.gather(r, c, func(h *tar.Header, content io.Reader) error {
		if to == nil {
			describe(w, h)
			w.Header().Set("Content-Type", "application/x-tar")
			w.WriteHeader(http.StatusOK)
			to = tar.NewWriter(w)
		}
		if err := to.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.Copy(to, content)
		return err
	})
	if to != nil {
		if err != nil {
			panic(http.ErrAbortHandler) // the client must not take a part for the whole
		}
		return to.Close()
	}
	return err
}

// putArchive unpacks a tar. A program in the container does, bound by its limits.
func (s *server) putArchive(w http.ResponseWriter, r *http.Request, c *container) error {
	at, err := pathOf(r)
	if err != nil {
		return err
	}
	sb, err := s.use(r.Context(), c)
	if err != nil {
		return err
	}
	in, err := unzipped(r.Body)
	if err != nil {
		return err
	}
	err = sb.Lay(r.Context(), tarball.Layout{Dest: at, Into: true}, func(to io.Writer) error {
		_, err := io.Copy(to, in)
		return err
	})
	if err != nil {
		return fail(http.StatusBadRequest, "%v", err)
	}
	w.WriteHeader(http.StatusOK)
	return nil
}
