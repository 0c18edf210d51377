package proxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"demesne/proxy/policy"
	"demesne/proxy/redact"
)

// issuer is the CA of one sandbox. Its key never leaves this process but by Authority, and
// it signs for the hosts of secrets only.
type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	mu     sync.Mutex
	leaves map[policy.Name]*tls.Certificate
}

// issuerLife is longer than any sandbox's.
const issuerLife = 30 * 24 * time.Hour

// newIssuer makes a CA, unless it is given one that another issuer had.
func newIssuer(sandbox string, had []byte) (*issuer, error) {
	if had != nil {
		return parseIssuer(had)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make CA: %w", err)
	}
	is := &issuer{key: key, leaves: map[policy.Name]*tls.Certificate{}}
	is.cert = template("demesne sandbox " + sandbox)
	is.cert.IsCA, is.cert.BasicConstraintsValid, is.cert.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, is.cert, is.cert, &key.PublicKey, key)
	if err == nil {
		is.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		return nil, fmt.Errorf("make CA: %w", err)
	}
	return is, nil
}

// template begins an hour ago: clocks differ.
func template(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // never fails
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(issuerLife),
	}
}

// leaf gives the certificate for a name. There are as many as hosts of secrets.
func (is *issuer) leaf(name policy.Name) (*tls.Certificate, error) {
	is.mu.Lock()
	defer is.mu.Unlock()
	if c := is.leaves[name]; c != nil {
		return c, nil
	}
	t := template("")
	t.DNSNames, t.ExtKeyUsage, t.KeyUsage = []string{name.String()}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, t, is.cert, &is.key.PublicKey, is.key)
	if err != nil {
		return nil, fmt.Errorf("sign for %q: %w", name, err)
	}
	c := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: is.key}
	is.leaves[name] = c
	return c, nil
}

// parseIssuer reads what authority wrote.
func parseIssuer(text []byte) (*issuer, error) {
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, fmt.Errorf("read CA: %w", err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("read CA: not an ECDSA key")
	}
	return &issuer{cert: pair.Leaf, key: key, leaves: map[policy.Name]*tls.Certificate{}}, nil
}

// Authority is the CA with its key, in PEM, for a proxy that replaces this one; without
// secrets, nil.
func (p *Proxy) Authority() []byte {
	if p.issuer == nil {
		return nil
	}
	key, err := x509.MarshalPKCS8PrivateKey(p.issuer.key)
	if err != nil {
		return nil // no ECDSA key can do that
	}
	return append(p.CA(), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
}

// CA is the certificate that a sandbox with secrets has to trust, in PEM; without
// secrets, nil.
func (p *Proxy) CA() []byte {
	if p.issuer == nil {
		return nil
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.issuer.cert.Raw})
}

// intercept ends the TLS of a connection to the host of a secret. The client is offered
// HTTP/1.1 only. Other connections stay as they are.
func (p *Proxy) intercept(h *held) net.Conn {
	if h.flow.shape() != httpsFor {
		return h
	}
	return tls.Server(h, &tls.Config{
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.issuer.leaf(h.flow.q.Name) },
	})
}

// hide blanks what an answer to a request that could have a secret in it says of one: an
// agent must not find by an echo what it does not have. Lengths stay as they are. What a
// server compresses that was asked not to, and what follows a change of protocol, is not read.
func (f *flow) hide(resp *http.Response) {
	if !f.encrypted {
		return
	}
	blankHeader(f.p.hidden, resp.Header)
	blankHeader(f.p.hidden, resp.Trailer) // the names that are announced
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return // its body is the connection
	}
	resp.Body = &blanked{f.p.hidden.Reader(resp.Body), resp.Body, f.p.hidden, resp}
}

// blankHeader blanks names and values. Go has put the names in its own case.
func blankHeader(hidden *redact.Values, h http.Header) {
	for _, name := range slices.Collect(maps.Keys(h)) {
		values := h[name]
		for i, v := range values {
			values[i] = hidden.Text(v)
		}
		if blank := hidden.FoldedText(name); blank != name {
			delete(h, name)
			h[blank] = append(h[blank], values...)
		}
	}
}

// blanked is the body of an answer. The header fields behind it, which are read with its end, are given
// on after it was closed.
type blanked struct {
	io.Reader
	body   io.Closer
	hidden *redact.Values
	resp   *http.Response
}

func (b *blanked) Close() error {
	err := b.body.Close()
	blankHeader(b.hidden, b.resp.Trailer)
	return err
}

// heldBy finds the connection below TLS.
func heldBy(c net.Conn) (*held, bool) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	h, ok := c.(*held)
	return h, ok
}
