package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"

	"demesne/server"
)

// Routes returns the handlers of the package, by pattern. They need the request's [server.Caller].
func (s *Store) Routes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"GET /mcp/runs":                         s.serveList,
		"GET /mcp/runs/{id}":                    s.serveRun,
		"DELETE /mcp/runs/{id}":                 s.serveCancel,
		"GET /mcp/events":                       s.serveEvents,
		"GET /artifacts/{name}/{run}/{path...}": s.serveArtifact,
		"GET /artifacts/{name}/{run}":           s.serveArtifact,
	}
}

// Options answers a browser's question before a request from another origin. Only an allowed origin gets here.
func Options(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

// EventsURL and StatusURL return the paths of a run.
func EventsURL(run string) string { return "/mcp/events?run_id=" + url.QueryEscape(run) }

// StatusURL returns the path of a run.
func StatusURL(run string) string { return "/mcp/runs/" + url.PathEscape(run) }

func sees(r *http.Request) func(string) bool { return server.CallerOf(r.Context()).Sees }

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

// refuse answers with an error. Only what the caller may know is in it.
func refuse(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrUnknown) {
		server.Refuse(w, http.StatusNotFound, ErrUnknown.Error())
		return
	}
	server.Refuse(w, http.StatusInternalServerError, "the run cannot be read")
}

// maxList bounds a list.
const maxList = 1000

func (s *Store) serveList(w http.ResponseWriter, r *http.Request) {
	most, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil || most < 1 {
		most = 100
	}
	list, err := s.List(min(most, maxList), sees(r))
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, map[string]any{"runs": list})
}

func (s *Store) serveRun(w http.ResponseWriter, r *http.Request) {
	run, err := s.Get(r.PathValue("id"), sees(r))
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, run)
}

func (s *Store) serveCancel(w http.ResponseWriter, r *http.Request) {
	run, err := s.Cancel(r.Context(), r.PathValue("id"), sees(r))
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, run)
}

// serveEvents streams the events of a run until its end. A client that returns names the last event that it has; one that
// has the last of the run gets no content, and does not return again.
func (s *Store) serveEvents(w http.ResponseWriter, r *http.Request) {
	to := server.NewEventStream(w)
	w.Header().Set("Cache-Control", "no-cache")
	j, q, err := s.job(r.URL.Query().Get("run_id"), sees(r))
	if err != nil {
		to.Send("", "error", fmt.Appendf(nil, `{"error":%q}`, ErrUnknown.Error()))
		return
	}
	if j.Status.Over() {
		j.Stdout = unobserved
	}
	f := s.feed(j.ID, q, j.Stdout)
	if j.Status.Over() {
		f.whole(r.Context())
	}
	at, _ := strconv.Atoi(r.Header.Get("Last-Event-ID"))
	for first := true; ; first = false {
		lines, over, news := f.after(at)
		if over && len(lines) == 0 {
			if first && at > 0 {
				w.WriteHeader(http.StatusNoContent)
			}
			return
		}
		if first {
			err = to.Comment("ok")
		}
		for _, l := range lines {
			at = l.number
			err = to.Send(strconv.Itoa(l.number), string(l.kind), l.data)
		}
		if err != nil || over {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(server.PingTime):
			err = to.Comment("")
		case <-news:
		}
	}
}

// serveArtifact serves a file, or the list of a run's files. The file is a sandbox's: a browser may show it, but gives it
// no rights of this server's pages.
func (s *Store) serveArtifact(w http.ResponseWriter, r *http.Request) {
	name, run, file := r.PathValue("name"), r.PathValue("run"), r.PathValue("path")
	namespace := server.CallerOf(r.Context()).Namespace
	if file == "" {
		s.serveArtifacts(w, r, name, run, namespace)
		return
	}
	f, info, err := s.openArtifact(name, run, file, namespace, sees(r))
	if err != nil {
		server.Refuse(w, http.StatusNotFound, "no such artifact")
		return
	}
	defer f.Close()
	h := w.Header()
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-cache")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	http.ServeContent(w, r, path.Base(file), info.ModTime(), f)
}

func (s *Store) serveArtifacts(w http.ResponseWriter, r *http.Request, name, run, namespace string) {
	if run == latestDir {
		run = idOf(s.latest(namespace, name))
	}
	j, q, err := s.job(run, sees(r))
	if err != nil || q.Identifier != name {
		server.Refuse(w, http.StatusNotFound, ErrUnknown.Error())
		return
	}
	list := s.artifacts(j.ID)
	if list == nil {
		list = []Artifact{}
	}
	answer(w, map[string]any{"run_id": run, "artifacts": list})
}
