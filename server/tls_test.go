package server

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/acme"
)

// TestACMENames checks that a client's name makes the server ask only for certificates of its own names, and that others cannot
// read its keys.
func TestACMENames(t *testing.T) {
	dir := t.TempDir()
	c, _, err := ACME{Names: []string{"a.example.com"}, Directory: "https://127.0.0.1:1/", State: dir}.Config()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b.example.com", "x.a.example.com", "example.com", "127.0.0.1", ""} {
		_, err := c.GetCertificate(&tls.ClientHelloInfo{ServerName: name})
		if err == nil || strings.Contains(err.Error(), "127.0.0.1:1") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if !slices.Contains(c.NextProtos, acme.ALPNProto) || c.MinVersion < tls.VersionTLS12 {
		t.Errorf("%v, at least %x", c.NextProtos, c.MinVersion)
	}
	if st, err := os.Stat(dir + "/acme"); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", st, err)
	}
}

// TestACMEOptions checks that what no authority can be asked with is an error at the start.
func TestACMEOptions(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	names := []string{"a.example.com"}
	for want, a := range map[string]ACME{
		`ACME name "localhost": not a host name`:     {Names: []string{"localhost"}},
		`ACME name "127.0.0.1": not a host name`:     {Names: []string{"127.0.0.1"}},
		`ACME name "*.example.com": not a host`:      {Names: []string{"*.example.com"}},
		`ACME directory "http://ca.test/": not an`:   {Names: names, Directory: "http://ca.test/"},
		`ACME directory "ca.test": not an https URL`: {Names: names, Directory: "ca.test"},
		"no certificate in PEM":                      {Names: names, CA: empty},
		"no such file":                               {Names: names, CA: dir + "/no"},
	} {
		a.State = dir
		if _, _, err := a.Config(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", a, err, want)
		}
	}
}
