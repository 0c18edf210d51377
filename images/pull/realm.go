package pull

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"

	"go.podman.io/image/v5/docker/reference"
	logins "go.podman.io/image/v5/pkg/docker/config"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"
	"golang.org/x/net/publicsuffix"

	"demesne/images/events"
	"demesne/images/imageref"
)

// Realm decides whether the credentials of a registry may go to an address that the registry names, such as its token server's.
// Without TLS they go only to the registry's own host, and only if the user allows that for the registry (plain). foreign
// reports that the address is of another site, which the user must be told.
func Realm(registry string, plain bool, to *url.URL) (foreign bool, err error) {
	host := hostOf(to.Host)
	switch {
	case to.Scheme == "http" && plain && host == hostOf(registry):
		return false, nil
	case to.Scheme != "https":
		return false, errorf(events.CodeDenied, "registry %q: its credentials do not go to %s://%s: that is not TLS", registry, clean(to.Scheme), clean(to.Host))
	}
	return site(host) != site(hostOf(registry)), nil
}

// ForeignNotice tells the user that credentials go to another site.
func ForeignNotice(registry string, to *url.URL) events.Event {
	return events.Event{Event: events.Notice, Why: clean("the credentials of registry " + registry + " go to its token server " + to.Host)}
}

// hostOf returns a host's name without its port.
func hostOf(host string) string {
	return strings.ToLower(strings.TrimSuffix((&url.URL{Host: host}).Hostname(), "."))
}

// site returns the part of a name that its owner registered, or the whole of an address.
func site(host string) string {
	if _, err := netip.ParseAddr(host); err == nil {
		return host
	}
	if s, err := publicsuffix.EffectiveTLDPlusOne(host); err == nil {
		return s
	}
	return host
}

// guard decides about each request of the library for one repository. The library sends credentials to any token server,
// and lets only a function that chooses a proxy see the address of a request.
type guard struct {
	named     reference.Named
	sys       *types.SystemContext
	endpoints map[string]bool // by host: the registry and its mirrors; whether the user allows it without TLS
	proxy     func(*url.URL) (*url.URL, error)
	report    func(events.Event)

	mu   sync.Mutex
	said map[string]bool
}

// Guarded returns a copy of sys for requests to the registry of a repository, with which credentials go only where [Realm]
// allows it.
func Guarded(sys *types.SystemContext, named reference.Named, report func(events.Event)) (*types.SystemContext, error) {
	own := *sys
	g := &guard{named: named, sys: sys, report: report, proxy: sys.DockerProxy, endpoints: map[string]bool{}, said: map[string]bool{}}
	if g.proxy == nil {
		g.proxy = func(u *url.URL) (*url.URL, error) { return http.ProxyFromEnvironment(&http.Request{URL: u}) }
	}
	conf, err := sysregistriesv2.FindRegistry(sys, named.Name())
	if err != nil {
		return nil, errorf(events.CodeInvalid, "read registries.conf: %w", err)
	}
	g.add(reference.Domain(named), conf != nil && conf.Insecure)
	if conf != nil {
		sources, err := conf.PullSourcesFromReference(named)
		if err != nil {
			return nil, errorf(events.CodeInvalid, "find mirrors of %q: %w", named, err)
		}
		for _, s := range sources {
			g.add(reference.Domain(s.Reference), s.Endpoint.Insecure)
		}
	}
	own.DockerProxy = g.choose
	return &own, nil
}

func (g *guard) add(domain string, insecure bool) {
	if v := g.sys.DockerInsecureSkipTLSVerify; v != types.OptionalBoolUndefined {
		insecure = v == types.OptionalBoolTrue
	}
	g.endpoints[imageref.ServerOf(domain)] = insecure
}

// choose refuses a request that would send credentials elsewhere, or chooses its proxy. The library adds the user's name to
// each request for a token that has a password. net/http keeps the credentials of a request that is redirected to the
// same host, also without TLS.
func (g *guard) choose(u *url.URL) (*url.URL, error) {
	var refusal error
	known, foreign := false, true
	for registry, plain := range g.endpoints {
		other, err := Realm(registry, plain, u)
		if err != nil {
			refusal = err
			continue
		}
		known, foreign = true, foreign && other
	}
	token := u.Query().Has("account")
	switch {
	case !known && (token || g.own(u) || g.credentials()):
		return nil, refusal
	case token && foreign:
		g.tell(u)
	}
	return g.proxy(u)
}

// own reports whether an address is of a registry's own host, or below it.
func (g *guard) own(u *url.URL) bool {
	for registry := range g.endpoints {
		if host := hostOf(u.Host); host == hostOf(registry) || strings.HasSuffix(host, "."+hostOf(registry)) {
			return true
		}
	}
	return false
}

// credentials reports whether the user has credentials for the repository. That may start a program, so it is asked last.
func (g *guard) credentials() bool {
	creds, err := logins.GetCredentialsForRef(g.sys, g.named)
	return err != nil || creds != (types.DockerAuthConfig{})
}

func (g *guard) tell(u *url.URL) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.said[u.Host] {
		g.said[u.Host] = true
		g.report(ForeignNotice(reference.Domain(g.named), u))
	}
}

// unreadable tells a file with credentials that is not JSON from an answer that is not.
func unreadable(sys *types.SystemContext, named reference.Named, err error) error {
	if !notJSON(err) {
		return err
	}
	if _, cerr := logins.GetCredentialsForRef(sys, named); cerr != nil {
		return errorf(events.CodeDenied, "read credentials: %w", cerr)
	}
	return err
}
