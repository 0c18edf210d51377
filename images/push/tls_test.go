package push

import (
	"crypto/tls"
	"encoding/pem"
	"net/http/httptest"
	"testing"
)

// newTLS serves a registry over TLS, with a certificate of its own, and returns its host.
func newTLS(t *testing.T, r *aRegistry) string {
	t.Helper()
	front := httptest.NewTLSServer(r.Config.Handler)
	front.Config.ErrorLog = r.Config.ErrorLog
	t.Cleanup(front.Close)
	return front.Listener.Addr().String()
}

// pemOf returns the certificate of a host.
func pemOf(t *testing.T, host string) []byte {
	t.Helper()
	c, err := tls.Dial("tcp", host, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.ConnectionState().PeerCertificates[0].Raw})
}
