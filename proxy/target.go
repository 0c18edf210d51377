package proxy

import (
	"net/http"
	"strings"
)

// oddTarget says why a request target goes nowhere, or "". What goes on is /path, or http://host/path, whose path
// is canonical: net/http also reads http:DATA and http:/path, of which the rules would see
// no path or another host.
func oddTarget(r *http.Request) string {
	scheme, rest, _ := strings.Cut(r.RequestURI, "://")
	switch {
	case strings.HasPrefix(r.RequestURI, "/"):
	case strings.EqualFold(scheme, "http") && rest != "" && r.URL.Host != "" && r.URL.Opaque == "":
		if r.URL.Path == "" {
			r.URL.Path = "/"
		}
	default:
		return "the request target must be /path or http://host/path"
	}
	return ""
}
