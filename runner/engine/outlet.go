package engine

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"

	"demesne/netns"
	"demesne/runner"
	"demesne/runner/outlet"
	"demesne/runner/protocol"
	"demesne/runner/wire"
)

// wayOut is how a sandbox with a network reaches it: its gateway, which is ours, and what
// serves that, in another process.
//
//	sandbox ── veth ── gateway's sockets ── demesne-proxy ── the host's network
//
// The sockets are there before the sandbox and wait for the proxy. When the runner is
// killed its descriptors are closed, and gateway and connections with them.
type wayOut struct {
	asked   runner.Egress // with what is in no Spec any more
	gateway *netns.Gateway
	golang  *os.File      // the listener of a Go module proxy inside; nil: none
	ports   []uint16      // served by name, where the kernel has no tproxy
	ported  []*os.File    // the sockets of those
	done    chan struct{} // closed when the proxy has answered; nil: it was not asked yet
	outlet  *outlet.Outlet
	err     error

	changing sync.Mutex // one change at a time

	mu      sync.Mutex
	used    bool                              // by a command
	waiting map[uint64]chan<- protocol.Answer // by question
	number  uint64
}

// begin asks p what the way out amounts to. log may be nil, and is closed with the way out.
func (w *wayOut) begin(p *outlet.Proxy, id string, log *os.File, ask func(name string, port uint16)) {
	w.done = make(chan struct{})
	v4, v6 := netns.Pools()
	go func() {
		defer close(w.done)
		w.outlet, w.err = p.Open(outlet.Config{Sandbox: id, Egress: w.asked, V4: v4, V6: v6, Log: log, Ask: ask})
	}()
}

// settled waits for the proxy's answer.
func (w *wayOut) settled() (outlet.Plan, error) {
	<-w.done
	if w.err != nil {
		return outlet.Plan{}, w.err
	}
	return w.outlet.Plan(), nil
}

// open makes the gateway, and verifies that its sockets are reached from inside.
func (w *wayOut) open() (err error) {
	if w.gateway, err = netns.NewGateway(); err != nil {
		return &wire.Error{
			Code: wire.CodeRequirement, Text: err.Error(),
			Hint: "demesne check tells what this machine lacks; --egress none needs nothing of it",
		}
	}
	if err = w.gateway.Verify(); err == nil && w.asked.GoProxy {
		w.golang, err = w.gateway.Sandbox.Listen(goProxy)
	}
	return err
}

// serve has the proxy serve the gateway's sockets, once it has answered.
func (w *wayOut) serve() error {
	plan, err := w.settled()
	if err != nil {
		return err
	}
	named := w.gateway.Named
	if w.gateway.NamedErr != nil {
		if named, err = w.listenOn(plan.Ports); err != nil {
			return err
		}
	}
	sockets := wire.Files{outlet.FileProxy: w.gateway.Proxy, outlet.FileDNS: w.gateway.DNS, outlet.FileDNSTCP: w.gateway.DNSTCP}
	if w.golang != nil {
		sockets[outlet.FileGo] = w.golang
	}
	return w.outlet.Listen(outlet.Listen{NoIPv6: w.gateway.IPv6Err != nil}, sockets, named)
}

// close ends what the sandbox has open, and its gateway.
func (w *wayOut) close() {
	if w.done != nil {
		if _, err := w.settled(); err == nil {
			w.outlet.Close()
		}
	}
	if w.gateway != nil {
		w.gateway.Close()
	}
	for _, f := range append(w.ported, w.golang) {
		f.Close() // of one that is nil does nothing
	}
}

// certVariables name a file of certificates to programs that would not look at the
// system's: OpenSSL, curl, git, Python's requests, Node, cargo, Deno, the AWS tools.
var certVariables = []string{
	"SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "CARGO_HTTP_CAINFO", "DENO_CERT", "AWS_CA_BUNDLE",
}

// goProxy is where a sandbox finds its own Go module proxy: jbeshir/demesne's address.
var goProxy = netip.MustParseAddrPort("127.0.0.1:8087")

// environ tells programs of the proxy. Those that do not ask find their way by names.
func environ(certFile string, golang bool, placeholders []outlet.Var) []string {
	at := "http://" + netns.ProxyAddr().String()
	var env []string
	for _, kv := range []string{"HTTP_PROXY=" + at, "HTTPS_PROXY=" + at, "ALL_PROXY=" + at, "NO_PROXY=localhost,127.0.0.1,::1"} {
		env = append(env, kv, lowerName(kv))
	}
	if certFile != "" {
		for _, name := range certVariables {
			env = append(env, name+"="+certFile)
		}
	}
	if golang {
		env = append(env, "GOPROXY=http://"+goProxy.String()+",direct")
	}
	for _, p := range placeholders {
		env = append(env, p.Name+"="+p.Value)
	}
	return env
}

// blocked is what the sandbox did not get, so far.
func (w *wayOut) blocked() []runner.Blocked {
	w.mu.Lock()
	used := w.used
	w.used = true
	w.mu.Unlock()
	if !used { // by the first command: nobody wanted anything before
		return nil
	}
	return w.outlet.Blocked()
}

// since is what came to be blocked between two answers of blocked. It is pure.
func since(before, now []runner.Blocked) []runner.Blocked {
	type key struct {
		host, reason string
		port         uint16
	}
	seen := map[key]int{}
	for _, b := range before {
		seen[key{b.Host, b.Reason, b.Port}] = b.Times
	}
	var all []runner.Blocked
	for _, b := range now {
		if b.Times -= seen[key{b.Host, b.Reason, b.Port}]; b.Times > 0 {
			all = append(all, b)
		}
	}
	return all
}

// networkWord is the receipt's word for a way out.
func networkWord(p outlet.Plan) string {
	switch {
	case p.Open:
		return "open"
	case p.Rules == 1:
		return "filtered: 1 rule"
	default:
		return fmt.Sprintf("filtered: %d rules", p.Rules)
	}
}

func lowerName(kv string) string {
	name, value, _ := strings.Cut(kv, "=")
	return strings.ToLower(name) + "=" + value
}
