package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"demesne/internal/fsutil"
)

// TLSFiles returns a configuration with a certificate and its key in files of PEM. Files that have changed are read again
// for the next connection; while they are wrong, the certificate before them is served. The key must be closed to other
// users.
func TLSFiles(cert, key string) (*tls.Config, error) {
	f := &certFiles{cert: cert, key: key}
	if _, err := f.get(); err != nil {
		return nil, err
	}
	return tlsConfig(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.get() }), nil
}

func tlsConfig(get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: get, NextProtos: []string{"h2", "http/1.1"}}
}

// certFiles is a certificate in files.
type certFiles struct {
	cert, key string

	mu     sync.Mutex
	last   *tls.Certificate
	stamps [2]fsutil.Stamp
	asked  time.Time
}

// checkEvery is how often the files are looked at.
const checkEvery = time.Second

func (f *certFiles) get() (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.last != nil && (now.Sub(f.asked) < checkEvery || f.stamps[0].Holds() && f.stamps[1].Holds()) {
		return f.last, nil
	}
	f.asked = now
	c, stamps, err := f.read()
	if err != nil && f.last == nil {
		return nil, err
	}
	if err == nil {
		f.last, f.stamps = c, stamps
	}
	return f.last, nil
}

// maxCert bounds each file.
const maxCert = 1 << 20

func (f *certFiles) read() (*tls.Certificate, [2]fsutil.Stamp, error) {
	one, err1 := fsutil.StampOf(f.cert)
	two, err2 := fsutil.StampOf(f.key)
	stamps := [2]fsutil.Stamp{one, two}
	if err := errors.Join(err1, err2); err != nil {
		return nil, stamps, fmt.Errorf("read certificate: %w", err)
	}
	if one.Size > maxCert {
		return nil, stamps, fmt.Errorf("read certificate: %q: more than %d bytes", f.cert, maxCert)
	}
	cert, err := os.ReadFile(f.cert)
	if err != nil {
		return nil, stamps, fmt.Errorf("read certificate: %w", err)
	}
	key, err := fsutil.ReadPrivate(f.key, maxCert)
	if err != nil {
		return nil, stamps, fmt.Errorf("read certificate's key: %w", err)
	}
	c, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, stamps, fmt.Errorf("read certificate: %w", err)
	}
	return &c, stamps, nil
}
