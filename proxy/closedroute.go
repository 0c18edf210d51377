package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// mostClosed bounds the body of a request to a closed route, in bytes. It is read before it is forwarded.
const mostClosed = 32 << 20

// unfit is the error of a request that is refused with the HTTP status code.
type unfit struct {
	code int
	error
}

// harmless are headers that a closed route forwards. Gateways of models' interfaces read the address of a server, or
// plug-ins, from other ones.
var harmless = []string{"Accept", "Accept-Encoding", "Accept-Language", "Content-Type", "User-Agent"}

// close makes rt a closed route, if r is closed.
func (rt *route) close(r Route) error {
	if !r.Closed {
		return nil
	}
	newSchema := interfaces[r.Usage]
	if newSchema == nil {
		return fmt.Errorf("its network is closed, and usage %q is not an interface whose requests can be checked", r.Usage)
	}
	rt.check = newSchema()
	for _, name := range append(slices.Clone(harmless), r.Headers...) {
		begin := strings.TrimSuffix(name, "*")
		key := http.CanonicalHeaderKey(begin)
		if begin == "" || slices.Contains(credentials, key) {
			return fmt.Errorf("header %q: cannot be forwarded", name)
		}
		rt.names = append(rt.names, key+name[len(begin):])
	}
	return nil
}

// forwards reports whether a closed route forwards a header.
func (rt *route) forwards(key string) bool {
	return slices.ContainsFunc(rt.names, func(name string) bool {
		begin, many := strings.CutSuffix(name, "*")
		return key == name || many && strings.HasPrefix(key, begin)
	})
}

// confine restricts a request to what a closed route forwards: known headers, and a body that is not compressed, so that
// it can be checked as the server will read it.
func (rt *route) confine(in *insertion, out *http.Request) error {
	coding := out.Header.Get("Content-Encoding")
	for key := range out.Header {
		if in.header[key] == nil && !rt.forwards(key) {
			out.Header.Del(key)
		}
	}
	if out.Header["User-Agent"] == nil {
		out.Header["User-Agent"] = nil
	}
	if out.Body != nil && coding != "" && !strings.EqualFold(coding, "identity") {
		return &unfit{http.StatusUnsupportedMediaType, errors.New("the body of the request is compressed, and cannot be checked")}
	}
	return nil
}

// longest returns the bound of a request's body, in bytes.
func (rt *route) longest() int64 {
	if rt.check != nil {
		return mostClosed
	}
	return mostBody
}
