package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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

// close makes a closed route of rt, if r is one.
func (rt *route) close(r Route) error {
	if !r.Closed {
		return nil
	}
	newSchema := interfaces[r.Usage]
	if newSchema == nil {
		return fmt.Errorf("its network is closed, and usage %q is no interface whose requests can be checked", r.Usage)
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

// confine restricts a request to what a closed route forwards. It reads the body whole, and checks it as the server
// will read it: the body is not compressed, and its type is JSON whatever the request said. done releases the body.
func (rs *routes) confine(rt *route, in *insertion, out *http.Request) (done func(), err error) {
	done = func() {}
	coding := out.Header.Get("Content-Encoding")
	for key := range out.Header {
		if in.header[key] == nil && !rt.forwards(key) {
			out.Header.Del(key)
		}
	}
	if out.Header["User-Agent"] == nil {
		out.Header["User-Agent"] = nil
	}
	if out.Body == nil {
		return done, nil
	}
	if coding != "" && !strings.EqualFold(coding, "identity") {
		return done, &unfit{http.StatusUnsupportedMediaType, errors.New("the body of the request is compressed, and cannot be checked")}
	}
	size := out.ContentLength
	if size < 0 {
		size = mostClosed
	}
	if size > mostClosed {
		return done, &unfit{http.StatusRequestEntityTooLarge, fmt.Errorf("the body of the request is larger than %d bytes", mostClosed)}
	}
	if !rs.memory.take(size) {
		return done, &unfit{http.StatusServiceUnavailable, errors.New("too many requests at once have large bodies")}
	}
	done = func() { rs.memory.put(size) }
	b, err := io.ReadAll(io.LimitReader(out.Body, mostClosed+1))
	switch {
	case err != nil:
		return done, fmt.Errorf("read the request: %w", err)
	case len(b) > mostClosed:
		return done, &unfit{http.StatusRequestEntityTooLarge, fmt.Errorf("the body of the request is larger than %d bytes", mostClosed)}
	}
	if err := rt.check.closed(b); err != nil {
		return done, &unfit{http.StatusBadRequest, err}
	}
	out.Header.Set("Content-Type", "application/json")
	out.ContentLength = int64(len(b))
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
	out.Body, err = out.GetBody()
	return done, err
}
