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

// issuer is the CA of one sandbox. Its key leaves this process only through Authority. It signs only for the
// hosts of secrets.
type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	mu     sync.Mutex
	leaves map[policy.Name]*tls.Certificate
}

// issuerLife exceeds the life of any sandbox.
const issuerLife = 30 * 24 * time.Hour

// newIssuer makes a CA, or reads an earlier issuer's from had.
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

// template starts its validity an hour ago, since clocks differ.
func template(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // never fails
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(issuerLife),
	}
}

// leaf returns the certificate for a name. The cache is bounded by the number of secrets' hosts.
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

// parseIssuer reads the output of Authority.
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

// Authority returns the CA with its key, in PEM, for a proxy that replaces this one. It returns nil without
// secrets.
func (p *Proxy) Authority() []byte {
	if p.issuer == nil {
		return nil
	}
	key, err := x509.MarshalPKCS8PrivateKey(p.issuer.key)
	if err != nil {
		return nil // never happens for an ECDSA key
	}
	return append(p.CA(), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
}

// CA returns the certificate that a sandbox with secrets must trust, in PEM. It returns nil without secrets.
func (p *Proxy) CA() []byte {
	if p.issuer == nil {
		return nil
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.issuer.cert.Raw})
}

// intercept ends the TLS of a connection to the host of a secret and offers the client HTTP/1.1 only. It returns
// other connections unchanged.
func (p *Proxy) intercept(h *held) net.Conn {
	if h.flow.shape() != httpsFor {
		return h
	}
	return tls.Server(h, &tls.Config{
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.issuer.leaf(h.flow.q.Name) },
	})
}

// hide blanks secret values in a response over TLS, so that an agent cannot read a value from an echo. Lengths do
// not change. It cannot search a body that a server compressed against the request, nor data after a protocol
// switch.
func (f *flow) hide(resp *http.Response) {
	if !f.encrypted {
		return
	}
	blankHeader(f.p.hidden, resp.Header)
	blankHeader(f.p.hidden, resp.Trailer) // the announced names
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return // its body is the connection
	}
	resp.Body = &blanked{f.p.hidden.Reader(resp.Body), resp.Body, f.p.hidden, resp}
}

// blankHeader blanks names and values. net/http has changed the case of the names.
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

// blanked is the body of a response. Trailer fields are read with its end and forwarded after Close, so Close
// blanks them.
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

// heldBy returns the held connection below TLS.
func heldBy(c net.Conn) (*held, bool) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	h, ok := c.(*held)
	return h, ok
}
