package policy

import (
	"path"
	"slices"
	"strings"
)

// coversHost says whether the rule speaks of the host that q is about.
func (r Rule) coversHost(q Query) bool {
	switch {
	case r.all:
		return true
	case q.Addr.IsValid():
		return r.prefix.IsValid() && r.prefix.Contains(q.Addr)
	case !r.name.IsZero():
		return r.name == q.Name
	default:
		return q.Name.Under(r.zone)
	}
}

// web are the ports that a rule without any allows. Others of the same name may be another
// server's, or one that serves names of other owners too.
var web = []uint16{80, 443}

// allowsPort says whether a rule that allows is for a port.
func (r Rule) allowsPort(port uint16) bool {
	if len(r.ports) == 0 {
		return r.every || slices.Contains(web, port)
	}
	return r.lists(port)
}

// deniesPort says whether a rule that denies is for a port.
func (r Rule) deniesPort(port uint16) bool { return len(r.ports) == 0 || r.lists(port) }

func (r Rule) lists(port uint16) bool {
	return slices.ContainsFunc(r.ports, func(p ports) bool { return p.from <= port && port <= p.to })
}

// narrowed says whether the rule looks at requests.
func (r Rule) narrowed() bool { return len(r.methods) > 0 || r.path != "" }

// coversRequest compares with the path as it is sent. One that servers may read in two
// ways, with dot segments, escaped slashes or dots, or empty segments, is under
// no path.
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
