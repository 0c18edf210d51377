package settings

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"demesne/internal/flock"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/server"
	"demesne/server/servecmd"
	"demesne/session/audit"
)

// StateDir makes the directory of the server's state.
func StateDir() (string, error) {
	dir, err := fsutil.StateDir("server")
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return "", fmt.Errorf("find state: %w", err)
	}
	return dir, nil
}

// AuditDir returns the directory of the audit log. The programs of jobs and agents, which the server starts, use it too.
func AuditDir() (string, error) {
	dir, err := audit.DefaultDir()
	if err != nil {
		return "", err
	}
	return dir, os.Setenv(audit.Variable, dir)
}

// Callers returns who may use the server.
func Callers(o *servecmd.Options, dir string) (*server.Access, error) {
	token, err := server.Token(cmp.Or(o.TokenFile, filepath.Join(dir, "token")))
	if err != nil {
		return nil, err
	}
	a := &server.Access{Token: token, Tokens: server.OpenTokens(dir)}
	a.Rates.Of = func(namespace string) float64 { return Bounds(o, namespace).Rate }
	if o.JWTKey != "" {
		a.JWT, err = server.ReadJWT(o.JWTKey, server.JWTOptions{Algorithm: o.JWTAlgorithm, Audience: o.JWTAudience, Issuer: o.JWTIssuer})
	} else if o.JWTAlgorithm != "" || o.JWTAudience != "" || o.JWTIssuer != "" {
		err = errors.New("a bound of JWTs needs --jwt-key-file")
	}
	return a, err
}

// Certificate returns how the server serves TLS; nil: it does not. keep obtains its certificates, and is nil for files.
func Certificate(o *servecmd.Options, dir string) (c *tls.Config, keep func(context.Context, *log.Logger), err error) {
	switch {
	case len(o.ACME) > 0 && (o.Cert != "" || o.Key != ""):
		return nil, nil, errors.New("--acme: not with --tls-cert and --tls-key")
	case len(o.ACME) > 0:
		return server.ACME{Names: o.ACME, Directory: o.ACMEDirectory, CA: o.ACMECA, Contact: o.ACMEContact, State: dir}.Config()
	case o.ACMEDirectory != "" || o.ACMECA != "" || o.ACMEContact != "":
		return nil, nil, errors.New("an ACME authority needs --acme with a host name")
	case (o.Cert != "") != (o.Key != ""):
		return nil, nil, errors.New("--tls-cert and --tls-key: both or neither")
	case o.Cert != "":
		c, err = server.TLSFiles(o.Cert, o.Key)
	}
	return c, nil, err
}

// Lock takes the lock that a directory's only server holds.
func Lock(dir string) (io.Closer, error) {
	f, err := flock.TryOpen(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, flock.Exclusive)
	if errors.Is(err, flock.ErrLocked) {
		return nil, text.Hinted(fmt.Errorf("another server uses %q", dir), "end it, or set DEMESNE_STATE for a second one")
	}
	if err != nil {
		return nil, fmt.Errorf("lock state: %w", err)
	}
	return f, nil
}
