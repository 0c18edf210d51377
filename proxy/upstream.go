package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"

	"demesne/proxy/policy"
)

// Upstream is the proxy that the host itself must use. It receives names and resolves them. A nil Upstream means
// no proxy.
type Upstream struct {
	of func(*url.URL) (*url.URL, error)
}

// UpstreamFrom reads HTTP_PROXY, HTTPS_PROXY and NO_PROXY, in upper or lower case, with a function like
// os.Getenv. It returns nil when no proxy is set. It rejects proxies whose scheme is neither http nor https.
func UpstreamFrom(getenv func(string) string) (*Upstream, error) {
	either := func(name string) string {
		if v := getenv(name); v != "" {
			return v
		}
		return getenv(strings.ToLower(name))
	}
	c := httpproxy.Config{HTTPProxy: either("HTTP_PROXY"), HTTPSProxy: either("HTTPS_PROXY"), NoProxy: either("NO_PROXY")}
	if c.HTTPProxy == "" && c.HTTPSProxy == "" {
		return nil, nil
	}
	for name, v := range map[string]string{"HTTP_PROXY": c.HTTPProxy, "HTTPS_PROXY": c.HTTPSProxy} {
		if err := checkProxy(v); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
	}
	return &Upstream{of: c.ProxyFunc()}, nil
}

// checkProxy does not repeat v in errors, since it may contain a password.
func checkProxy(v string) error {
	if v == "" {
		return nil
	}
	if !strings.Contains(v, "://") {
		v = "http://" + v
	}
	u, err := url.Parse(v)
	switch {
	case err != nil || u.Hostname() == "":
		return errors.New("not the URL of a proxy")
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("proxies of kind %q are not supported", u.Scheme)
	}
	return nil
}

// forRequest returns the proxy for a request to target, or nil.
func (u *Upstream) forRequest(target *url.URL) (*url.URL, error) {
	if u == nil {
		return nil, nil
	}
	return u.of(&url.URL{Scheme: target.Scheme, Host: target.Host})
}

// hop is a proxy to open a tunnel through.
type hop struct{ url *url.URL }

// forConnect returns the proxy for a connection to q, or nil.
func (u *Upstream) forConnect(q policy.Query) *hop {
	if u == nil {
		return nil
	}
	to, err := u.of(&url.URL{Scheme: "https", Host: net.JoinHostPort(q.Host(), fmt.Sprint(q.Port))})
	if err != nil || to == nil {
		return nil
	}
	return &hop{to}
}

func (h *hop) address() string {
	port := h.url.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[h.url.Scheme]
	}
	return net.JoinHostPort(h.url.Hostname(), port)
}

// connect opens a tunnel. It passes the proxy's name to the Dialer, not an address.
func (h *hop) connect(ctx context.Context, d Dialer, q policy.Query) (net.Conn, error) {
	c, err := d.DialContext(ctx, "tcp", h.address())
	if err != nil {
		return nil, fmt.Errorf("dial upstream proxy: %w", err)
	}
	if h.url.Scheme == "https" {
		c = tls.Client(c, &tls.Config{ServerName: h.url.Hostname()})
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	c, err = h.tunnel(c, net.JoinHostPort(q.Host(), fmt.Sprint(q.Port)))
	if !stop() && err == nil {
		c.Close()
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("ask upstream proxy: %w", err)
	}
	return c, nil
}

// tunnel sends CONNECT and reads the answer byte by byte, as bytes of the tunnel may follow it. It closes c on
// error.
func (h *hop) tunnel(c net.Conn, target string) (net.Conn, error) {
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: target}, Host: target, Header: http.Header{}}
	if u := h.url.User; u != nil {
		password, _ := u.Password()
		req.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+password)))
	}
	if err := req.Write(c); err != nil {
		c.Close()
		return nil, err
	}
	br := bufio.NewReaderSize(&slow{c: c, left: 64 << 10}, 16)
	resp, err := http.ReadResponse(br, req)
	if err != nil {
		c.Close()
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		c.Close()
		return nil, fmt.Errorf("it answered %q", resp.Status)
	}
	return c, nil
}

// slow reads one byte at a time, so that nothing after the answer is read ahead. It reads at most left bytes.
type slow struct {
	c    net.Conn
	left int
}

func (s *slow) Read(b []byte) (int, error) {
	if s.left--; s.left < 0 {
		return 0, errors.New("answer is too long")
	}
	return s.c.Read(b[:min(1, len(b))])
}
