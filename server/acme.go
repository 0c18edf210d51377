package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"

	"demesne/internal/text"
)

// ACME says how certificates are obtained (RFC 8555).
type ACME struct {
	Names     []string // of this server; no others are asked for
	Directory string   // URL of the authority; empty: Let's Encrypt's
	CA        string   // file with certificates of PEM that the authority's own one is checked with; empty: the system's
	Contact   string   // mail address; empty: none
	State     string   // directory for the account and the certificates, which only this user can reach
}

// authorityTime bounds one request to the authority. Without it, an authority that does not answer delays each handshake
// by minutes.
const authorityTime = 20 * time.Second

// Config returns a configuration that obtains and renews certificates, and keeps them in a.State. The authority must reach
// this listener at port 443 of each name: it proves the name within TLS (RFC 8737), so no other port is needed. It is asked
// at the first handshake for a name, or by keep, which obtains all certificates and reports to the log until its context ends.
func (a ACME) Config() (c *tls.Config, keep func(context.Context, *log.Logger), err error) {
	client, err := a.client()
	if err != nil {
		return nil, nil, err
	}
	for _, name := range a.Names {
		if strings.ContainsAny(name, "*:/ ") || !strings.Contains(strings.Trim(name, "."), ".") || net.ParseIP(name) != nil {
			return nil, nil, fmt.Errorf("ACME name %q: not a host name with a dot, such as sandboxes.example.com", name)
		}
	}
	dir := filepath.Join(a.State, "acme")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make ACME state: %w", err)
	}
	m := &autocert.Manager{
		Prompt: autocert.AcceptTOS, Cache: autocert.DirCache(dir), HostPolicy: autocert.HostWhitelist(a.Names...), Email: a.Contact,
		Client: client,
	}
	c = tlsConfig(m.GetCertificate)
	c.NextProtos = append(c.NextProtos, acme.ALPNProto)
	return c, func(ctx context.Context, l *log.Logger) {
		for _, name := range a.Names {
			go keepCertificate(ctx, m.GetCertificate, name, l)
		}
	}, nil
}

// client returns the client for the authority.
func (a ACME) client() (*acme.Client, error) {
	c := &acme.Client{DirectoryURL: a.Directory}
	if a.Directory == "" {
		c.DirectoryURL = acme.LetsEncryptURL
	} else if u, err := url.Parse(a.Directory); err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("ACME directory %q: not an https URL", a.Directory)
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	if a.CA != "" {
		pem, err := os.ReadFile(a.CA)
		if err != nil {
			return nil, fmt.Errorf("read certificates of the ACME authority: %w", err)
		}
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read certificates of the ACME authority: %q: no certificate in PEM", a.CA)
		}
	}
	c.HTTPClient = &http.Client{Transport: t, Timeout: authorityTime}
	return c, nil
}

// Times of keepCertificate. An authority counts attempts that fail, Let's Encrypt five an hour, and package autocert makes
// one a minute at most.
const (
	firstRetry  = 2 * time.Minute
	lastRetry   = time.Hour
	lookAgain   = time.Hour
	overdueLeft = 4 // a certificate whose last part of this many has begun should have been renewed at its last third
)

// keepCertificate obtains the certificate of a name, and reports when there is another one, none, or one that was not
// renewed in time. Package autocert renews by itself, and says nothing when it cannot.
func keepCertificate(ctx context.Context, get func(*tls.ClientHelloInfo) (*tls.Certificate, error), name string, l *log.Logger) {
	hello := &tls.ClientHelloInfo{ServerName: name, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}
	var until time.Time
	for retry, wait := firstRetry, time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		c, err := get(hello)
		if err != nil {
			l.Printf("certificate for %q: %s; the next attempt is in %s", name, text.SafeLine(err.Error()), retry)
			wait, retry = retry, min(2*retry, lastRetry)
			continue
		}
		end, life := c.Leaf.NotAfter, c.Leaf.NotAfter.Sub(c.Leaf.NotBefore)
		left := time.Until(end)
		switch {
		case !end.Equal(until):
			l.Printf("certificate for %q: valid until %s", name, end.UTC().Format(time.RFC3339))
		case left < life/overdueLeft:
			l.Printf("certificate for %q: not renewed, and it ends at %s; is the authority reachable?", name, end.UTC().Format(time.RFC3339))
		}
		until, retry, wait = end, firstRetry, min(lookAgain, max(left/2, life/20))
	}
}
