package proxy

import (
	"fmt"
	"net"
	"net/http"
	"strings"

	"demesne/proxy/policy"
)

// ServeGo serves a Go module proxy, as in GOPROXY, until Close. It forwards to the public module proxy and, below
// /sumdb/, to the public checksum database, as far as the policy allows them. It allows only GET and HEAD, and
// returns redirects to the client.
func (p *Proxy) ServeGo(l net.Listener) error {
	return p.accept(l, func(c *net.TCPConn) {
		p.web().toNamed.Give(&held{Conn: c, flow: &flow{p: p, route: p.serveGo}})
	})
}

func (p *Proxy) serveGo(w http.ResponseWriter, r *http.Request) {
	host, below := policy.GoModules, ""
	if _, ok := strings.CutPrefix(r.URL.EscapedPath(), sumDB+"/"); ok {
		host, below = policy.GoChecksums, sumDB
	}
	name, _ := policy.ParseName(host) // a constant
	q := policy.Query{Name: name, Port: 443}
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		f := p.malformed("http", host, fmt.Errorf("the Go proxy accepts GET and HEAD, not %.20q", r.Method))
		defer f.end()
		http.Error(w, f.message(), http.StatusMethodNotAllowed)
	case r.URL.EscapedPath() == sumDB+"/supported": // the client asks whether /sumdb/ is served; see golang.org/ref/mod
	default:
		http.StripPrefix(below, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p.web().forward.serve(w, r, q, true)
		})).ServeHTTP(w, r)
	}
}

// sumDB is the path of the checksum database on a module proxy.
const sumDB = "/sumdb/" + policy.GoChecksums
