package docker

import (
	"net/http"
	"strings"
	"time"

	"demesne/internal/lazy"
	"demesne/internal/text"
)

// handler returns the API. A path may begin with a version.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, do := range s.routes() {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			rc.SetWriteDeadline(time.Time{}) // of an earlier answer
			r.Body = &timedBody{ReadCloser: r.Body, from: rc, idle: bodyIdle, end: time.Now().Add(bodyTime)}
			if !strings.HasSuffix(pattern, "/archive") && !strings.HasSuffix(pattern, "/build") {
				r.Body = http.MaxBytesReader(w, r.Body, bodyMost)
			}
			if err := do(w, r); err != nil {
				answer(w, statusOf(err), map[string]string{"message": text.SafeLine(err.Error())})
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusNotImplemented, map[string]string{"message": text.SafeLine(r.Method+" "+r.URL.Path) + ": not supported by demesne's Docker socket"})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if found := versionPrefix.Get().FindString(r.URL.Path); found != "" {
			r.URL.Path, r.URL.RawPath = r.URL.Path[len(found)-1:], ""
		}
		h := w.Header()
		h.Set("Api-Version", apiVersion)
		h.Set("Builder-Version", "1") // the classic builder
		h.Set("Docker-Experimental", "false")
		h.Set("Ostype", "linux")
		h.Set("Server", "demesne")
		mux.ServeHTTP(w, r)
	})
}

func (s *server) routes() map[string]handle {
	return map[string]handle{
		"GET /_ping":                       s.ping,
		"GET /version":                     s.version,
		"GET /info":                        s.info,
		"GET /events":                      s.followEvents,
		"POST /auth":                       s.noLogin,
		"GET /containers/json":             s.listContainers,
		"POST /containers/create":          s.createContainer,
		"GET /containers/{id}/json":        s.with(s.inspectContainer),
		"POST /containers/{id}/start":      s.with(s.startContainer),
		"POST /containers/{id}/stop":       s.with(s.stopContainer),
		"POST /containers/{id}/restart":    s.with(s.restartContainer),
		"POST /containers/{id}/kill":       s.with(s.killContainer),
		"POST /containers/{id}/wait":       s.with(s.waitContainer),
		"POST /containers/{id}/rename":     s.with(s.renameContainer),
		"POST /containers/{id}/resize":     s.with(s.resizeContainer),
		"POST /containers/{id}/attach":     s.with(s.attachContainer),
		"GET /containers/{id}/logs":        s.with(s.containerLogs),
		"GET /containers/{id}/top":         s.with(s.top),
		"DELETE /containers/{id}":          s.with(s.removeContainer),
		"HEAD /containers/{id}/archive":    s.with(s.statArchive),
		"GET /containers/{id}/archive":     s.with(s.getArchive),
		"PUT /containers/{id}/archive":     s.with(s.putArchive),
		"POST /containers/{id}/exec":       s.with(s.createExec),
		"POST /containers/prune":           s.pruneContainers,
		"POST /exec/{id}/start":            s.startExec,
		"POST /exec/{id}/resize":           s.resizeExec,
		"GET /exec/{id}/json":              s.inspectExec,
		"GET /images/json":                 s.listImages,
		"GET /images/{name...}":            s.inspectImage,
		"POST /images/create":              s.pullImage,
		"POST /images/prune":               s.pruneNone,
		"POST /images/{name...}":           s.tagImage,
		"DELETE /images/{name...}":         s.removeImage,
		"POST /build":                      s.build,
		"POST /build/prune":                s.pruneNone,
		"POST /grpc":                       s.noBuildKit,
		"POST /session":                    s.noBuildKit,
		"GET /volumes":                     s.listVolumes,
		"POST /volumes/create":             s.createVolume,
		"GET /volumes/{name}":              s.inspectVolume,
		"DELETE /volumes/{name}":           s.removeVolume,
		"POST /volumes/prune":              s.pruneVolumes,
		"GET /networks":                    s.listNetworks,
		"POST /networks/create":            s.createNetwork,
		"GET /networks/{name}":             s.inspectNetwork,
		"DELETE /networks/{name}":          s.removeNetwork,
		"POST /networks/{name}/connect":    s.connectNetwork,
		"POST /networks/{name}/disconnect": s.disconnectNetwork,
		"POST /networks/prune":             s.pruneNetworks,
	}
}

// handle answers a request; an error becomes the answer.
type handle func(w http.ResponseWriter, r *http.Request) error

var versionPrefix = lazy.Regexp{Expr: `^/v[0-9]+\.[0-9]+/`}
