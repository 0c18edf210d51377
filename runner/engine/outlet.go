package engine

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"demesne/netns"
	"demesne/proxy"
	"demesne/runner"
	"demesne/runner/wire"
)

// outlet is a sandbox's way out: its gateway, and the proxy that serves it.
//
//	sandbox ── veth ── gateway's sockets ── proxy ── the host's network
//
// The sockets are there before the sandbox and wait for the proxy. When the runner is
// killed its descriptors are closed, and gateway and connections with them.
type outlet struct {
	gateway *netns.Gateway
	proxy   *proxy.Proxy
	log     *os.File

	mu      sync.Mutex
	egress  *egress
	waiting map[uint64]chan<- bool // for answers
	asked   uint64
}

// fallbackPorts are served by name where the kernel has no tproxy: those of the web, git,
// ssh, mail and databases.
var fallbackPorts = []uint16{22, 25, 80, 443, 465, 587, 993, 1433, 3306, 5432, 6379, 8080, 8443, 9418, 27017}

// newOutlet makes the proxy of a way out, which has no gateway yet. log may be nil, and is
// closed with the outlet.
func newOutlet(id string, e *egress, log *os.File, ask proxy.Approver) (*outlet, error) {
	o := &outlet{egress: e, log: log, waiting: map[uint64]chan<- bool{}}
	v4, v6 := netns.Pools()
	c := e.config(id, v4, v6, log)
	c.Approve = ask
	var err error
	if o.proxy, err = proxy.New(c); err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

// open makes the gateway, and verifies that the proxy's socket is reached from inside.
func (o *outlet) open() (err error) {
	if o.gateway, err = netns.NewGateway(); err != nil {
		return &wire.Error{
			Code: wire.CodeRequirement, Text: err.Error(),
			Hint: "demesne check tells what this machine lacks; --egress none needs nothing of it",
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := o.gateway.Sandbox.DialTCP(ctx, netns.ProxyAddr())
	if err != nil {
		return fmt.Errorf("verify gateway: %w", err)
	}
	return c.Close()
}

// serve lets the proxy serve until close.
func (o *outlet) serve() error {
	if o.gateway.IPv6Err != nil {
		o.proxy.V6 = netip.Prefix{} // no answer names an address that leads nowhere
	}
	named := o.gateway.Named
	if o.gateway.NamedErr != nil {
		for _, port := range fallbackPorts {
			l, err := o.gateway.Listen(port)
			if err != nil {
				return err
			}
			named = append(named, l...)
		}
	}
	for _, l := range named {
		go o.proxy.ServeNamed(l)
	}
	go o.proxy.ServeProxy(o.gateway.Proxy)
	go o.proxy.ServeDNS(o.gateway.DNS)
	go o.proxy.ServeDNSTCP(o.gateway.DNSTCP)
	return nil
}

// close ends what the sandbox has open, and its gateway.
func (o *outlet) close() {
	if o.proxy != nil {
		o.proxy.Close()
	}
	if o.gateway != nil {
		o.gateway.Close()
	}
	if o.log != nil {
		o.log.Close()
	}
}

// certVariables name a file of certificates to programs that would not look at the
// system's: OpenSSL, curl, git, Python's requests, Node, cargo, Deno, the AWS tools.
var certVariables = []string{
	"SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "CARGO_HTTP_CAINFO", "DENO_CERT", "AWS_CA_BUNDLE",
}

// env tells programs of the proxy. Those that do not ask find their way by names.
func (o *outlet) env(certFile string) []string {
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
	for _, s := range o.egress.secrets {
		env = append(env, s.String()+"="+s.Placeholder())
	}
	return env
}

// allowed is what holds now.
func (o *outlet) allowed() *egress {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.egress
}

// use makes e hold for what comes next.
func (o *outlet) use(e *egress) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.egress = e
	o.proxy.SetPolicy(e.policy)
}

// blocked is what the sandbox did not get, so far.
func (o *outlet) blocked() []runner.Blocked {
	var all []runner.Blocked
	for _, b := range o.proxy.Blocked() {
		all = append(all, runner.Blocked(b))
	}
	return all
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

// layers are the receipt's lines about it.
func (o *outlet) layers() []runner.Layer {
	v4, v6 := netns.Pools()
	gateway := runner.Layer{Name: "gateway", Status: runner.Held}
	gateway.Detail = fmt.Sprintf("a namespace without a way out; routes to %v and %v only", v4, v6)
	if err := o.gateway.IPv6Err; err != nil {
		gateway.Detail = fmt.Sprintf("a namespace without a way out; a route to %v only, no IPv6: %v", v4, err)
	}
	names := runner.Layer{Name: "egress-by-name", Status: runner.Held, Detail: "tproxy: any TCP port of an allowed name"}
	if err := o.gateway.NamedErr; err != nil {
		names.Status, names.Why = runner.Degraded, err.Error()
		names.Detail = fmt.Sprintf("TCP ports %v of an allowed name; others through the proxy only", fallbackPorts)
		names.Fix = "sudo modprobe -a nf_tables nft_tproxy"
	}
	return []runner.Layer{gateway, names}
}

func lowerName(kv string) string {
	name, value, _ := strings.Cut(kv, "=")
	return strings.ToLower(name) + "=" + value
}
