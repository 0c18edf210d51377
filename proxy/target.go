package proxy

import (
	"net/http"
	"strings"
)

// oddTarget returns why a request target is not forwarded, or "". It accepts /path and http://host/path, and
// replaces an empty path by /. net/http also parses http:DATA and http:/path, for which the rules would see no
// path or another host.
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
