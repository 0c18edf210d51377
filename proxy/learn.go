package proxy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"demesne/proxy/policy"
)

// maxReadLine bounds a line of a log, in bytes. The fields of a Record are bounded too.
const maxReadLine = 64 << 10

// ReadLog reads a log.
func ReadLog(r io.Reader) ([]Record, error) {
	var all []Record
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxReadLine)
	for n := 1; lines.Scan(); n++ {
		var rec Record
		if err := json.Unmarshal(lines.Bytes(), &rec); err != nil {
			return nil, fmt.Errorf("read log: line %d: %w", n, err)
		}
		all = append(all, rec)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	return all, nil
}

// Suggest returns the words of the smallest policy that would have allowed what was allowed: each name or address
// with the ports that were used, and each address of a name that a rule for the name does not cover.
func Suggest(log []Record) []string {
	ports := map[string]map[uint16]bool{}
	use := func(host string, port uint16) {
		if ports[host] == nil {
			ports[host] = map[uint16]bool{}
		}
		ports[host][port] = true
	}
	for _, r := range log {
		q, err := policy.Ask(r.Host, r.Port)
		if err != nil || r.Port == 0 || r.Verdict != Allowed || r.unruled() {
			continue
		}
		use(q.Host(), r.Port)
		if at, needed := r.addressRule(q); needed {
			use(at.String(), r.Port)
		}
	}
	var words []string
	for _, host := range slices.Sorted(maps.Keys(ports)) {
		list := ""
		for i, p := range slices.Sorted(maps.Keys(ports[host])) {
			if i > 0 {
				list += ","
			}
			list += strconv.Itoa(int(p))
		}
		words = append(words, net.JoinHostPort(host, list))
	}
	return words
}

// unruled reports whether r needed no rule: it is about a route, or a sandbox of the same group.
func (r Record) unruled() bool { return r.Via == viaRoute || r.Group != "" }

// addressRule reports whether the connection r also needed a rule for the address that was dialled, such as a private
// one. The address of an upstream proxy, which has a port of its own, needs none.
func (r Record) addressRule(q policy.Query) (found netip.Addr, needed bool) {
	at, err := netip.ParseAddrPort(r.Address)
	rule, rerr := policy.ParseRule(net.JoinHostPort(q.Host(), strconv.Itoa(int(r.Port))))
	if err != nil || rerr != nil || q.Addr.IsValid() || at.Port() != r.Port {
		return found, false
	}
	p := policy.Policy{}.Allow(rule)
	found = at.Addr().Unmap()
	return found, !p.Dial(p.Decide(q), q, found).Allowed
}

// Replay returns what pol would have denied in a log. It decides by name, port and request. It checks only the dialled address
// of a name, because the log has no others.
func Replay(log []Record, pol policy.Policy) []Blocked {
	var blocked Denials
	for _, r := range log {
		if d, about := r.replay(pol); about && !d.Allowed {
			blocked.Add(Record{Host: r.Host, Port: r.Port, Reason: d.Reason, Count: r.Count, allow: d.Allow})
		}
	}
	return blocked.List()
}

func (r Record) replay(pol policy.Policy) (d policy.Decision, about bool) {
	q, err := policy.Ask(r.Host, r.Port)
	if err != nil || r.unruled() {
		return d, false
	}
	if r.Via == "dns" {
		return pol.Resolves(q.Name), !q.Name.IsZero()
	}
	fmt.Sscanf(r.Request, "%s %s", &q.Method, &q.Path)
	d = pol.Decide(q)
	if at, err := netip.ParseAddrPort(r.Address); err == nil && at.Port() == r.Port { // not an upstream proxy's port
		d = pol.Dial(d, q, at.Addr())
	}
	return d, true
}
