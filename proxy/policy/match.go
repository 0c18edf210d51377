package policy

import (
	"path"
	"slices"
	"strings"
)

// coversHost reports whether the rule covers q's host.
func (r Rule) coversHost(q Query) bool {
	switch {
	case r.all:
		return true
	case q.Addr.IsValid():
		return r.prefix.IsValid() && r.prefix.Contains(q.Addr)
	case !r.name.IsZero():
		return r.name == q.Name
	default:
		return q.Name.under(r.zone)
	}
}

// web are the ports that a rule without ports allows. Another port of the same name may be served by another
// server, or by one shared with other owners.
var web = []uint16{80, 443}

// allowsPort reports whether an allow rule covers a port.
func (r Rule) allowsPort(port uint16) bool {
	if len(r.ports) == 0 {
		return r.every || slices.Contains(web, port)
	}
	return r.lists(port)
}

// deniesPort reports whether a deny rule covers a port.
func (r Rule) deniesPort(port uint16) bool { return len(r.ports) == 0 || r.lists(port) }

func (r Rule) lists(port uint16) bool {
	return slices.ContainsFunc(r.ports, func(p ports) bool { return p.from <= port && port <= p.to })
}

// narrowed reports whether the rule depends on the request.
func (r Rule) narrowed() bool { return len(r.methods) > 0 || r.path != "" }

// coversRequest compares q's method and its path as sent. A path that servers could read in two ways matches no
// pattern but /*. Examples are dot segments, empty segments, backslashes, semicolons, and escaped slashes or
// dots.
func (r Rule) coversRequest(q Query) bool {
	if len(r.methods) > 0 && !slices.Contains(r.methods, q.Method) {
		return false
	}
	if r.path == "" || r.path == "/*" {
		return true
	}
	if !plainPath(q.Path) {
		return false
	}
	if zone, below := strings.CutSuffix(r.path, "/*"); below {
		return strings.HasPrefix(q.Path, zone+"/")
	}
	return q.Path == r.path
}

func plainPath(p string) bool {
	lower := strings.ToLower(p)
	for _, s := range []string{"%2e", "%2f", "%5c", "%25", `\`, ";"} {
		if strings.Contains(lower, s) {
			return false
		}
	}
	clean := path.Clean(p)
	return p == clean || p == clean+"/"
}
