package server

import (
	"net/http"
	"strings"
)

// Contain removes from the headers of a program's answer what would change the server's own name in a browser, or the
// names of other sandboxes. host is the Host of the request.
//
//   - Clear-Site-Data removes the cookies of every name of the site.
//   - A cookie with a Domain goes to every name below it. Only the name of the request may be it, and only if that is one of
//     the sandbox's own: a label below domain.
//   - A cookie with the name of a login hides the login's own. One without a name is sent as NAME=VALUE of its value.
//
// Browsers are lenient about the form of a cookie, so a cookie is dropped if a part of it has one of these meanings.
func (*Access) Contain(h http.Header, host, domain string) {
	h.Del("Clear-Site-Data")
	own := ""
	if _, ok := (Guard{Domain: domain}).PortLabel(host); ok {
		own, _ = hostname(host)
	}
	cookies := h["Set-Cookie"]
	h.Del("Set-Cookie")
	for _, c := range cookies {
		if isContained(c, own) {
			h.Add("Set-Cookie", c)
		}
	}
}

// isContained reports whether a cookie stays with the name own; empty: with the name that set it.
func isContained(cookie, own string) bool {
	if strings.ContainsFunc(cookie, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return false // browsers differ about where it ends
	}
	pair, attributes, _ := strings.Cut(cookie, ";")
	name, _, found := strings.Cut(pair, "=")
	if name = trimCookie(name); !found || name == "" || isLoginCookie(name) {
		return false
	}
	for a := range strings.SplitSeq(attributes, ";") {
		key, value, _ := strings.Cut(a, "=")
		value = strings.TrimPrefix(trimCookie(value), ".")
		if strings.EqualFold(trimCookie(key), "Domain") && value != "" && !strings.EqualFold(value, own) {
			return false
		}
	}
	return true
}

func trimCookie(s string) string { return strings.Trim(s, " \t") }

// isLoginCookie reports whether a cookie has the name of a login of this server, or of another one on this host.
func isLoginCookie(name string) bool {
	name = strings.ToLower(name)
	return name == loginCookie || strings.HasPrefix(name, loginCookie+"_")
}
