package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// DefaultURL is where demesne serve listens unless told otherwise.
const DefaultURL = "http://127.0.0.1:7480"

// Options says where a server is. The zero value is the server of this user on this machine.
type Options struct {
	// URL is http://HOST:PORT, https://HOST, or unix:PATH. Empty: DefaultURL. Then an empty Token is read from
	// $DEMESNE_STATE/server/token, or ~/.demesne/server/token. Other users of this machine may listen on the port of a server
	// that does not run, and so learn the token. With unix:PATH they cannot.
	URL       string
	Token     string // the server's or a namespace's. It is sent only to URL, unencrypted unless URL is https: use https beyond this machine
	Namespace string // makes the operator one of that namespace's callers; empty: not
	// HTTP makes the requests; nil: a client of its own. It is copied, and follows no redirect. Its Timeout bounds whole
	// requests, and therefore commands and streams: 0 is best.
	HTTP *http.Client
}

// New returns a Client that speaks HTTP. It does not connect yet.
func New(o Options) (*Client, error) {
	c := &remote{http: &http.Client{}, token: o.Token, namespace: o.Namespace}
	if o.HTTP != nil {
		*c.http = *o.HTTP
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	at := cmp.Or(o.URL, DefaultURL)
	path := ""
	if p, unix := strings.CutPrefix(at, "unix:"); unix {
		if c.http.Transport != nil || p == "" {
			return nil, fmt.Errorf("parse URL %q: a socket needs a path, and no transport of the caller", o.URL)
		}
		path, at = p, "http://localhost"
	}
	var err error
	if c.base, err = url.Parse(at); err != nil || c.base.Scheme != "http" && c.base.Scheme != "https" || c.base.Host == "" {
		return nil, fmt.Errorf("parse URL %q: not http://HOST, https://HOST or unix:PATH", o.URL)
	}
	c.base.User, c.base.RawQuery, c.base.Fragment = nil, "", ""
	if o.URL == "" && o.Token == "" {
		if c.token, err = readToken(); err != nil {
			return nil, fmt.Errorf("read token: %w", err)
		}
	}
	if c.http.Transport == nil {
		c.own = newTransport(path)
		c.http.Transport = c.own
	}
	return &Client{c}, nil
}

// newTransport returns a transport. path names a socket; empty: TCP.
func newTransport(path string) *http.Transport {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 64, IdleConnTimeout: idleTime}
	if path != "" {
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	}
	return t
}

// readToken reads the token of this user's server.
func readToken() (string, error) {
	dir := os.Getenv("DEMESNE_STATE")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(home, ".demesne")
	}
	f, err := os.Open(filepath.Join(dir, "server/token"))
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxToken))
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(line), err
}

// remote sends requests to a server, which may be in this process.
type remote struct {
	base             *url.URL
	token, namespace string
	http             *http.Client
	own              *http.Transport // nil: the caller's
}

// Close releases connections. Sandboxes and jobs live on.
func (c *Client) Close() error {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
	return nil
}

// query are the parameters of a request.
type query map[string]string

// send sends a request, and returns its answer unless that is an error. body may be nil.
func (c *remote) send(ctx context.Context, method, path string, q query, body io.Reader, header ...string) (*http.Response, error) {
	values := url.Values{}
	for name, value := range q {
		if value != "" {
			values.Set(name, value)
		}
	}
	return c.sendQuery(ctx, method, path, values, body, header...)
}

// sendQuery is send for names that occur more than once.
func (c *remote) sendQuery(ctx context.Context, method, path string, values url.Values, body io.Reader, header ...string) (*http.Response, error) {
	u := c.base.JoinPath("v1")
	at, err := url.Parse(strings.TrimSuffix(u.String(), "/") + path)
	if err != nil {
		return nil, err
	}
	at.RawQuery = values.Encode()
	r, err := http.NewRequestWithContext(ctx, method, at.String(), body)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.namespace != "" {
		r.Header.Set("Demesne-Namespace", c.namespace)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 && resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		return nil, problem(resp)
	}
	return resp, nil
}

// sendJSON sends a request with a body; nil: none.
func (c *remote) sendJSON(ctx context.Context, method, path string, q query, in any) (*http.Response, error) {
	if in == nil {
		return c.send(ctx, method, path, q, nil)
	}
	b, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	return c.send(ctx, method, path, q, bytes.NewReader(b), "Content-Type", "application/json")
}

// call sends a request and decodes its answer, or ignores that if out is nil. verb begins its errors.
func (c *remote) call(ctx context.Context, verb, method, path string, q query, in, out any) error {
	resp, err := c.sendJSON(ctx, method, path, q, in)
	if err == nil {
		err = decode(resp, out)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return nil
}

// Bounds.
const (
	maxToken  = 4 << 10
	maxAnswer = 64 << 20
	idleTime  = 90e9 // nanoseconds
)

// decode decodes an answer, and closes it.
func decode(resp *http.Response, out any) error {
	defer resp.Body.Close()
	b, err := readLimited(resp.Body, maxAnswer)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	return nil
}

// readLimited reads at most limit bytes.
func readLimited(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%w: %d bytes", ErrTooLarge, limit)
	}
	return b, err
}

// got returns an answer of one value.
func got[T any](c *remote, ctx context.Context, verb, method, path string, q query, in any) (*T, error) {
	out := new(T)
	if err := c.call(ctx, verb, method, path, q, in, out); err != nil {
		return nil, err
	}
	return out, nil
}

// listed returns an answer of a list.
func listed[T any](c *remote, ctx context.Context, verb, path string) ([]T, error) {
	p, err := got[Page[T]](c, ctx, verb, http.MethodGet, path, nil, nil)
	if err != nil {
		return nil, err
	}
	return p.Items, nil
}

// Server describes the server and the caller.
func (c *Client) Server(ctx context.Context) (*Server, error) {
	return got[Server](c.remote, ctx, "describe server", http.MethodGet, "/server", nil, nil)
}

// Queue counts the commands that run and wait.
func (c *Client) Queue(ctx context.Context) (*Queue, error) {
	return got[Queue](c.remote, ctx, "describe queue", http.MethodGet, "/queue", nil, nil)
}
