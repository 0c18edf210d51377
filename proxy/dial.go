package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"demesne/proxy/policy"
)

// connect dials the target of f. If the policy permits no address that was found, it returns a *deniedError and
// denies the flow.
func (f *flow) connect(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, f.p.Limits.Dial)
	defer cancel()
	c, at, err := f.p.dial(ctx, f.d, f.q)
	f.rec.Address = at
	if no, ok := errors.AsType[*deniedError](err); ok {
		f.refuse(no.d)
	} else if err != nil {
		f.failed(err)
	}
	return c, err
}

// failed records why an allowed flow failed. That a name does not resolve looks like a denial to a client, so the result names it.
func (f *flow) failed(err error) {
	f.rec.Error = err.Error()
	var no *unresolvedError
	switch {
	case errors.As(err, &no):
		f.rec = f.rec.unmetBy(true, "the name does not resolve: %s", no.reason())
	case errors.Is(err, errSpent):
		f.rec = f.rec.unmetBy(false, "%s", f.p.spent.of(f.d.Rule).usedUp())
	}
}

// unresolvedError reports that a name has no address.
type unresolvedError struct {
	name policy.Name
	err  error
}

func (e *unresolvedError) Error() string { return fmt.Sprintf("resolve %q: %v", e.name, e.err) }
func (e *unresolvedError) Unwrap() error { return e.err }

// reason leaves out the addresses of the host's resolvers.
func (e *unresolvedError) reason() string {
	if d := (*net.DNSError)(nil); errors.As(e.err, &d) {
		return d.Err
	}
	return e.err.Error()
}

// deniedError reports that a name has no address that may be dialled.
type deniedError struct{ d policy.Decision }

func (e *deniedError) Error() string { return e.d.Reason }

// dial returns a connection and the address that it dialled.
func (p *Proxy) dial(ctx context.Context, d policy.Decision, q policy.Query) (net.Conn, string, error) {
	if d.Group != "" {
		c, err := p.Group.Dial(ctx, q.Name.String(), q.Port)
		return c, "", err
	}
	if q.Addr.IsValid() {
		if good, no := p.permitted(d, q, []netip.Addr{q.Addr}); len(good) == 0 {
			return nil, "", &deniedError{no}
		}
	}
	if via := p.Upstream.forConnect(q); via != nil {
		c, err := via.connect(ctx, p.Dialer, q)
		return c, via.url.Host, err
	}
	addrs, err := p.addresses(ctx, q)
	if err != nil {
		return nil, "", err
	}
	good, no := p.permitted(d, q, addrs)
	if len(good) == 0 {
		return nil, "", &deniedError{no}
	}
	c, err := p.dialAny(ctx, good)
	if err != nil {
		return nil, good[0].String(), err
	}
	return c, c.RemoteAddr().String(), nil
}

// addresses resolves q's name, once. A name with a dot is taken as absolute, so the host's search list is not
// tried.
func (p *Proxy) addresses(ctx context.Context, q policy.Query) ([]netip.Addr, error) {
	if q.Addr.IsValid() {
		return []netip.Addr{q.Addr}, nil
	}
	name := q.Name.String()
	if strings.Contains(name, ".") {
		name += "."
	}
	addrs, err := p.Resolver.LookupNetIP(ctx, "ip", name)
	if err == nil && len(addrs) == 0 {
		err = errors.New("no address")
	}
	if err != nil {
		return nil, &unresolvedError{q.Name, err}
	}
	return addrs, nil
}

// permitted returns the addresses that may be dialled, at most mostTried. no is the denial of the first other
// address.
func (p *Proxy) permitted(d policy.Decision, q policy.Query, addrs []netip.Addr) (good []netip.AddrPort, no policy.Decision) {
	pol := p.policy.Load()
	for _, a := range addrs {
		if len(good) == mostTried {
			break
		}
		to := netip.AddrPortFrom(a.Unmap().WithZone(""), q.Port)
		at := p.mayDial(pol, d, q, to)
		if at.Allowed {
			good = append(good, to)
		} else if no.Reason == "" {
			no = at
		}
	}
	return good, no
}

// mayDial decides about one address. The policy decides first. An address of this host must then be named by a
// rule.
func (p *Proxy) mayDial(pol *policy.Policy, d policy.Decision, q policy.Query, to netip.AddrPort) policy.Decision {
	at := pol.Dial(d, q, to.Addr())
	if !at.Allowed || pol.Names(q, to.Addr()) {
		return at
	}
	if whose := p.whose(to); whose != "" {
		return d.Unlisted(q, to.Addr(), whose)
	}
	return at
}

// mayUse reports whether the policy permits f the address of up, which was dialled for another decision: by another
// rule, or before the policy changed.
func (f *flow) mayUse(up net.Conn) bool {
	if _, ok := up.(memberConn); ok || f.d.Group != "" {
		return ok && f.d.Group != ""
	}
	if via, err := f.upstream(); err == nil && via != nil {
		return true // up leads to the host's own proxy
	}
	at, err := netip.ParseAddrPort(up.RemoteAddr().String())
	if err != nil {
		return false
	}
	good, _ := f.p.permitted(f.d, f.q, []netip.Addr{at.Addr()})
	return len(good) > 0
}

// mostTried bounds the addresses of a name that are dialled. An answer may have thousands, and the host would
// connect to each for one connection of a sandbox.
const mostTried = 16

// dialAny tries the addresses in order and divides the remaining time among them.
func (p *Proxy) dialAny(ctx context.Context, to []netip.AddrPort) (net.Conn, error) {
	var errs []error
	for i, at := range to {
		deadline, _ := ctx.Deadline()
		one, cancel := context.WithTimeout(ctx, time.Until(deadline)/time.Duration(len(to)-i))
		c, err := p.Dialer.DialContext(one, "tcp", at.String())
		cancel()
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// whose describes at if it is, or may be, an address of this host. Otherwise it returns "".
func (p *Proxy) whose(at netip.AddrPort) string {
	switch own, err := p.Own(at); {
	case err != nil:
		return fmt.Sprintf("possibly this host; own addresses are unknown: %v", err)
	case own:
		return "this host"
	}
	return ""
}
