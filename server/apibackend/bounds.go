package apibackend

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/proxy/policy"
	"demesne/runner"
	"demesne/runner/limits"
	"demesne/server"
	"demesne/server/backend"
	"demesne/server/servecmd"
	"demesne/session"
)

// bounds are the operator's bounds in the words of a session.
type bounds struct {
	servecmd.Bounds
	most    runner.Limits // 0: no bound
	listed  []policy.Rule // what callers may allow beyond the widest mode
	foreign bool          // callers are not the operator
}

func newBounds(o Options) (b bounds, err error) {
	b = bounds{Bounds: o.Bounds, foreign: o.Namespace != ""}
	b.Egress = cmp.Or(b.Egress, servecmd.DefaultEgress)
	b.most = runner.Limits{
		Memory: cmp.Or(b.Max.Memory, max(b.Limits.Memory, 0)), Disk: cmp.Or(b.Max.Disk, max(b.Limits.Disk, 0)),
		PIDs: cmp.Or(b.Max.PIDs, runner.DefaultPIDs), CPUs: b.Max.CPUs,
	}
	b.Limits = b.usual()
	for _, words := range b.AllowedDomains {
		r, err := policy.ParseRule(words)
		if err != nil {
			return b, fmt.Errorf("allowed-domains %q: %w", words, err)
		}
		b.listed = append(b.listed, r)
	}
	return b, nil
}

// usual returns the limits of a sandbox whose caller asks for none: the default ones, within the bounds.
func (b *bounds) usual() runner.Limits {
	l, full := b.Limits, limits.Resolve(b.Limits)
	within := func(l *int64, full, most int64) {
		if most > 0 && (full < 0 || full > most) {
			*l = most
		}
	}
	within(&l.Memory, full.Memory, b.most.Memory)
	within(&l.Disk, full.Disk, b.most.Disk)
	within(&l.PIDs, full.PIDs, b.most.PIDs)
	if l.CPUs == 0 {
		l.CPUs = b.most.CPUs
	}
	return l
}

// clamped returns limits that a caller asks for, within the operator's.
func (b *bounds) clamped(l runner.Limits) runner.Limits {
	within := func(asked, most int64) int64 {
		if asked > 0 && most > 0 {
			return min(asked, most)
		}
		return max(asked, 0)
	}
	l = runner.Limits{
		Memory: within(l.Memory, b.most.Memory), Disk: within(l.Disk, b.most.Disk), PIDs: within(l.PIDs, b.most.PIDs), CPUs: max(l.CPUs, 0),
	}
	if b.most.CPUs > 0 {
		l.CPUs = min(l.CPUs, b.most.CPUs)
	}
	return l
}

// time returns the time of a command that asks for d; 0: it asks for none.
func (b *bounds) time(d time.Duration) time.Duration {
	if b.MaxTimeout > 0 && (d <= 0 || d > b.MaxTimeout) {
		return b.MaxTimeout
	}
	return d
}

// clientImage parses the image that a client names. A file or directory of this machine is refused: the API has no access
// to files of the host. So is an image that the operator's list does not name, if there is a list, or a namespace.
func (b *bounds) clientImage(name string) (ref imageref.Ref, pull images.PullPolicy, err error) {
	ref, err = session.ParseImage(name)
	if err != nil {
		return ref, "", fmt.Errorf("%w: template %q: %w", backend.ErrInvalid, name, err)
	}
	if ref.Kind == imageref.Directory || ref.Local() {
		return ref, "", fmt.Errorf("%w: template %q: a file or directory of the host is no template", backend.ErrInvalid, name)
	}
	if !b.foreign && len(b.AllowedImages) == 0 || name == b.Image {
		return ref, "", nil
	}
	ok, stored := imageref.Permitted(name, b.AllowedImages)
	switch {
	case !ok:
		return ref, "", fmt.Errorf("%w: template %q: the operator does not allow this image", backend.ErrInvalid, name)
	case stored:
		pull = images.PullNever
	}
	return ref, pull, nil
}

// modes are the modes that a client may name, the narrowest first.
var modes = []string{session.NoEgress, "package-managers", "open"}

// within checks that the operator allows a mode.
func (b *bounds) within(mode string) error {
	n := slices.Index(modes, mode)
	switch {
	case n < 0:
		return fmt.Errorf("%w: network mode %q: not one of %s", backend.ErrInvalid, mode, strings.Join(modes, ", "))
	case n > slices.Index(modes, b.Egress):
		return fmt.Errorf("%w: network mode %q: the operator allows %q", backend.ErrInvalid, mode, b.Egress)
	}
	return nil
}

// mayAllow checks that no rule leads further than the operator's widest mode, or that the operator lists it.
func (b *bounds) mayAllow(rules []string) error {
	for _, words := range rules {
		r, err := policy.ParseRule(words)
		if err != nil {
			return fmt.Errorf("%w: rule %q: %w", backend.ErrInvalid, words, err)
		}
		if covered(r, b.listed) {
			continue
		}
		if why := b.beyond(r); why != "" {
			return fmt.Errorf("%w: rule %q: %s, and the operator allows %q", backend.ErrInvalid, words, why, b.Egress)
		}
	}
	return nil
}

// beyond returns why a rule leads further than the operator's widest mode, or "".
func (b *bounds) beyond(r policy.Rule) string {
	if b.Egress == "open" {
		return r.BeyondOpen(ownAddresses())
	}
	m, err := policy.ParseMode(b.Egress)
	if err != nil || r.Addresses() || !covered(r, m.Rules()) {
		return "not part of it"
	}
	return ""
}

// covered reports whether the operator's rules contain r. One for addresses must be among them literally.
func covered(r policy.Rule, by []policy.Rule) bool {
	return slices.ContainsFunc(by, func(l policy.Rule) bool {
		_, within := r.Within(l)
		return l.Words() == r.Words() || within && !r.Addresses()
	})
}

// ownAddresses returns the addresses of this machine. A sandbox reaches none of them by a rule of its caller.
func ownAddresses() (own []netip.Addr) {
	all, _ := net.InterfaceAddrs() // without them a rule still must name a public address
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				own = append(own, ip.Unmap())
			}
		}
	}
	return own
}

// MayDecide checks that a request's caller may answer a sandbox's question, and so allow any public name. Below the mode
// open the operator alone may.
func (b *Backend) MayDecide(ctx context.Context) error {
	switch {
	case b.bounds.Egress == session.NoEgress:
		return fmt.Errorf("%w: the operator allows no network", backend.ErrInvalid)
	case b.bounds.Egress != "open" && !server.CallerOf(ctx).Operator:
		return fmt.Errorf("%w: the operator allows %q, and decides about the rest", backend.ErrInvalid, b.bounds.Egress)
	}
	return nil
}
