package session

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// shortest is the shortest text with the form of a certificate.
const shortest = "-----BEGIN CERTIFICATE-----\nMAYwADAAAwA=\n-----END CERTIFICATE-----\n"

// TestTrust checks which certificates of the caller's files a sandbox gets.
func TestTrust(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := file("ca.pem", "# mine\n"+shortest)
	key := file("key.pem", "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n")
	both := file("both.pem", "password=secret\n-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"+shortest)
	large := file("large.pem", shortest+strings.Repeat("#", maxTrust))
	many := file("many.pem", strings.Repeat(shortest, maxTrust/len(shortest)))
	fifo, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "link.pem")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(ca, link); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name  string
		env   map[string]string
		files []string
		want  string
	}{
		{"nothing", nil, nil, ""},
		{"Node's", map[string]string{"NODE_EXTRA_CA_CERTS": ca}, nil, shortest},
		{"one file, by several names", map[string]string{"NODE_EXTRA_CA_CERTS": ca, "SSL_CERT_FILE": link, "PIP_CERT": ca, "npm_config_cafile": ca}, []string{ca}, shortest},
		{"two files", map[string]string{"CURL_CA_BUNDLE": ca, "GIT_SSL_CAINFO": both}, nil, shortest + shortest},
		{"a tool's file", nil, []string{"", both}, shortest},
		{"a private key", map[string]string{"REQUESTS_CA_BUNDLE": key}, nil, ""},
		{"a fifo", map[string]string{"SSL_CERT_FILE": fifo}, []string{ca}, shortest},
		{"a directory, a device, no file", map[string]string{"SSL_CERT_FILE": dir, "PIP_CERT": "/dev/zero", "CURL_CA_BUNDLE": dir + "/none"}, nil, ""},
		{"too large", map[string]string{"SSL_CERT_FILE": large, "PIP_CERT": ca}, nil, shortest},
		{"too many", map[string]string{"SSL_CERT_FILE": many, "PIP_CERT": both}, []string{file("more.pem", strings.Repeat(shortest, 20))}, strings.Repeat(shortest, 21)},
	} {
		got := trust(func(name string) string { return row.env[name] }, row.files)
		if string(got.PEM) != row.want || got.Host {
			t.Errorf("%s: %d bytes, want %d; %v", row.name, len(got.PEM), len(row.want), got.Host)
		}
		if bytes.Contains(got.PEM, []byte("c2VjcmV0")) {
			t.Errorf("%s: a secret is among the certificates", row.name)
		}
	}
	for _, name := range fsutil.CertBundles {
		if _, err := os.Stat("/" + name); err == nil {
			if got := trust(func(string) string { return "/" + name }, nil); !got.Host || got.PEM != nil {
				t.Errorf("/%s: %v, %d bytes", name, got.Host, len(got.PEM))
			}
		}
	}
}
