package text

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
)

// authority returns a certificate and its private key, in PEM.
func authority(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", secret)
}

func TestCertificates(t *testing.T) {
	cert, key := authority(t)
	other, _ := authority(t)
	labelled := strings.ReplaceAll(key, "PRIVATE KEY", "CERTIFICATE")
	block, _ := pem.Decode([]byte(cert))
	long := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: append(block.Bytes, "secret"...)}))
	headed := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"token": "secret"}, Bytes: block.Bytes}))
	for _, row := range []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"one", cert, cert},
		{"two, with comments", "# token=secret\n" + cert + "between\n" + other + "after", cert + other},
		{"a key beside it", key + cert + key, cert},
		{"a key labelled as a certificate", labelled, ""},
		{"bytes after the certificate", long, ""},
		{"headers", headed, cert},
		{"cut off", cert[:len(cert)/2], ""},
		{"cut off before another", cert[:len(cert)/2] + "\n" + other, other},
		{"no PEM", "password=secret\n", ""},
		{"no certificate", "-----BEGIN CERTIFICATE-----\nc2VjcmV0\n-----END CERTIFICATE-----\n", ""},
		{"OpenSSL's trusted form", strings.ReplaceAll(cert, "CERTIFICATE", "TRUSTED CERTIFICATE"), ""},
	} {
		if got := string(Certificates([]byte(row.text))); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

// TestCertificateForms checks that no encoding of lengths makes Certificates read beyond its text.
func TestCertificateForms(t *testing.T) {
	for _, der := range []string{"", "0", "0\x80", "0\x81", "0\x84\x00\x00\x00\x00", "0\x82\xff\xff", "0\x83\xff\xff\xff00", "0\x02\x30\x05", "0\x06\x30\x00\x30\x00\x03\x01", "0\xff"} {
		if isCertificate([]byte(der)) {
			t.Errorf("%q: accepted", der)
		}
	}
	if !isCertificate([]byte("0\x06\x30\x00\x30\x00\x03\x00")) {
		t.Error("the form of a certificate: refused")
	}
}
