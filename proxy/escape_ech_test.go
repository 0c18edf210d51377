package proxy

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"demesne/proxy/policy"
)

// echKey returns a key for encrypted ClientHellos and its ECHConfigList, with allowed.test as the public name.
func echKey(t *testing.T) (key tls.EncryptedClientHelloKey, list []byte) {
	t.Helper()
	k, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	body := append([]byte{7, 0, 0x20, 0, 32}, k.PublicKey().Bytes()...) // DHKEM(X25519, HKDF-SHA256)
	body = append(body, 0, 4, 0, 1, 0, 1, 0, byte(len("allowed.test")))
	body = append(body, "allowed.test\x00\x00"...)
	config := binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(body)))
	config = append(config, body...)
	return tls.EncryptedClientHelloKey{Config: config, PrivateKey: k.Bytes(), SendAsRetry: true}, append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...)
}

// TestEscapeN9ECH checks that a ClientHello which contains an encrypted one is denied, whatever its outer name.
func TestEscapeN9ECH(t *testing.T) {
	_, list := echKey(t)
	b := clientHello(t, &tls.Config{ServerName: "hidden.test", MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: list})
	h, _, err := readHello(bytes.NewReader(b), nil)
	if err != nil || !h.encrypted || h.name.String() != "allowed.test" {
		t.Fatalf("%+v %v", h, err)
	}
	r := newRig(t, Config{Policy: allow(t, "allowed.test")}, "allowed.test")
	c := r.named("allowed.test", 443)
	c.Write(b)
	if got, _ := io.ReadAll(c); !bytes.Equal(got, unrecognizedName) {
		t.Errorf("%x", got)
	}
	r.blocked("TLS with an encrypted ClientHello: its server name is hidden, and no rule has ech = true")
}

// TestECHRule checks that a rule with ech allows such a ClientHello if the outer name is the rule's. The server
// may have no key, as with a browser's GREASE, or have one, in which case it uses the inner name.
func TestECHRule(t *testing.T) {
	ca := newAuthority(t)
	key, list := echKey(t)
	ca.serveHTTPS(t, "8.0.0.2:443", hello200, "allowed.test")
	keyed := ca.server(t, "allowed.test", "hidden.test")
	keyed.EncryptedClientHelloKeys = []tls.EncryptedClientHelloKey{key}
	l, err := tls.Listen("tcp", "8.0.0.3:443", keyed)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, hello200)
	client := func(c net.Conn, name string) *tls.Conn {
		return tls.Client(c, &tls.Config{RootCAs: ca.pool, ServerName: name, MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: list})
	}
	r := newRig(t, Config{Policy: allow(t, "allowed.test ech", "other.test ech", "strict.test")}, "allowed.test")
	for _, name := range []string{"other.test.", "strict.test."} {
		r.world.at[name] = r.world.at["allowed.test."]
	}
	for way, open := range r.ways("allowed.test", 443) {
		var grease *tls.ECHRejectionError
		if err := client(open(), "hidden.test").Handshake(); !errors.As(err, &grease) {
			t.Errorf("%s: a server without keys, verified as allowed.test: %v", way, err)
		}
	}
	for _, name := range []string{"other.test", "strict.test"} {
		c, _, _ := r.connect(name + ":443")
		if err := client(c, "hidden.test").Handshake(); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.blocked(`TLS names server "allowed.test", not "other.test"`)
	r.blocked("TLS with an encrypted ClientHello: its server name is hidden, and no rule has ech = true")

	keys := newRig(t, Config{Policy: allow(t, "allowed.test ech")}, "none.test", "allowed.test")
	c, _, _ := keys.connect("allowed.test:443")
	hidden := client(c, "hidden.test")
	if err := hidden.Handshake(); err != nil || !hidden.ConnectionState().ECHAccepted {
		t.Errorf("a server with keys: %v", err)
	}
}

// TestECHSecret checks that TLS which ends in the proxy uses the outer name, so that no rule needs to allow ECH.
func TestECHSecret(t *testing.T) {
	_, list := echKey(t)
	ca := newAuthority(t)
	ca.serveHTTPS(t, "8.0.0.2:443", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) }, "allowed.test")
	s := secret(t, "allowed.test", "")
	r := newRig(t, Config{Policy: policy.Policy{}.Allow(policy.Everything()), Secrets: []Secret{s}, Roots: ca.pool}, "allowed.test")
	trust := newAuthority(t).pool.Clone()
	trust.AppendCertsFromPEM(r.proxy.CA())
	c, _, _ := r.connect("allowed.test:443")
	var grease *tls.ECHRejectionError
	err := tls.Client(c, &tls.Config{RootCAs: trust, ServerName: "hidden.test", MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: list}).Handshake()
	if !errors.As(err, &grease) {
		t.Errorf("%v", err)
	}
}
