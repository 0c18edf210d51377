package network

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/network/proxyclient"
)

// mostRoutes bounds the routes of a sandbox. Each has a socket and perhaps a file, and one message carries all of them
// to the proxy.
const mostRoutes = 32

// admitRoutes rejects routes that cannot be served beside each other. The proxy validates the rest of them.
func admitRoutes(e *runner.Egress) error {
	invalid := func(format string, a ...any) error {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: %w", fmt.Errorf(format, a...))
	}
	if len(e.Routes) > mostRoutes {
		return invalid("%d routes, more than %d", len(e.Routes), mostRoutes)
	}
	ports := map[uint16]bool{}
	for _, r := range e.Routes {
		switch {
		case r.Port == 0:
			return invalid("a route without a port")
		case ports[r.Port]:
			return invalid("two routes on port %d", r.Port)
		case e.GoProxy && r.Port == goProxy.Port():
			return invalid("route on port %d: the Go module proxy has this port", r.Port)
		case slices.Contains(e.Listen, r.Port):
			return invalid("route on port %d: the caller listens on this port", r.Port)
		}
		ports[r.Port] = true
	}
	return nil
}

// AdmitTokens rejects a new sandbox with a route that no program in it could use, or any could. e may be nil. The
// routes of a restarted sandbox may lack their tokens, and then refuse all requests: see [Tokenless].
func AdmitTokens(e *runner.Egress) error {
	if e == nil {
		return nil
	}
	for _, r := range e.Routes {
		if len(r.Token) < runner.MinRouteToken {
			return ipc.Errorf(ipc.CodeInvalid, "create sandbox: route on port %d: its token is shorter than %d bytes", r.Port, runner.MinRouteToken)
		}
	}
	return nil
}

// Tokenless returns the addresses of the routes that lack their token. e may be nil.
func Tokenless(e *runner.Egress) (all []string) {
	if e == nil {
		return nil
	}
	for _, r := range e.Routes {
		if r.Token == "" {
			all = append(all, loopback(r.Port).String())
		}
	}
	return all
}

// WithCredentials returns routes with the credentials of the given routes on the same ports.
func WithCredentials(routes, given []runner.Route) []runner.Route {
	routes = slices.Clone(routes)
	for i := range routes {
		r := &routes[i]
		r.Token, r.Header = "", nil
		if j := slices.IndexFunc(given, func(g runner.Route) bool { return g.Port == r.Port }); j >= 0 {
			r.Token, r.Header = given[j].Token, given[j].Header
		}
	}
	return routes
}

// withHeaders returns routes with the given headers, by port, in place of their own.
func withHeaders(routes []runner.Route, headers map[uint16]map[string]string) ([]runner.Route, error) {
	routes = slices.Clone(routes)
	for port, h := range headers {
		i := slices.IndexFunc(routes, func(r runner.Route) bool { return r.Port == port })
		if i < 0 {
			return nil, fmt.Errorf("no route on port %d", port)
		}
		routes[i].Header = maps.Clone(h)
	}
	return routes, nil
}

// publicRoutes returns routes without credentials.
func publicRoutes(routes []runner.Route) (all []runner.Route) {
	for _, r := range routes {
		all = append(all, r.Public())
	}
	return all
}

// loopback returns the address of a port on the sandbox's loopback.
func loopback(port uint16) netip.AddrPort { return netip.AddrPortFrom(goProxy.Addr(), port) }

// listenRoutes opens the sockets of the routes, in the sandbox's namespace.
func (w *Egress) listenRoutes() error {
	for _, r := range w.asked.Routes {
		f, err := w.gateway.Sandbox.Listen(loopback(r.Port))
		if err != nil {
			return fmt.Errorf("serve route on port %d: %w", r.Port, err)
		}
		if w.routes == nil {
			w.routes = ipc.Files{}
		}
		w.routes[proxyclient.FileRoute(r.Port)] = f
	}
	return nil
}

// Records returns the files of m that receive the usage records of the routes of e, and the routes' gates.
func Records(e *runner.Egress, m *ipc.Message) ipc.Files {
	files := ipc.Files{}
	for i := range e.Routes {
		if f := m.File(api.FileRecord(i)); f != nil {
			files[proxyclient.FileRecord(i)] = f
		}
		if f := m.File(api.FileGate(i)); f != nil {
			files[api.FileGate(i)] = f
		}
	}
	return files
}

// closeAll closes files.
func closeAll(files ipc.Files) {
	for _, f := range files {
		f.Close()
	}
}
