package server

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"demesne/internal/fsutil"
)

// JWT accepts JSON Web Tokens (RFC 7519) that an identity service signs with a shared key. A token must have an end (exp)
// and a namespace. It is never the operator's: who holds the key may act for every namespace, and nothing more.
type JWT struct {
	key     []byte
	methods []string
	parser  *jwt.Parser
}

// JWTOptions says which tokens are accepted.
type JWTOptions struct {
	Algorithm string // HS256, HS384 or HS512; empty: those that the key is long enough for
	Audience  string // the token must have it; empty: any
	Issuer    string // the token must have it; empty: any
}

// jwtSizes are the algorithms with the bytes that their keys need (RFC 7518, section 3.2).
var jwtSizes = []struct {
	name string
	size int
}{{"HS256", 32}, {"HS384", 48}, {"HS512", 64}}

// leeway is how much the clocks of two machines may differ.
const leeway = 30 * time.Second

// ReadJWT returns a JWT with the key in a file that is this user's alone. Its bytes are the key, without a line break at
// the end.
func ReadJWT(path string, o JWTOptions) (*JWT, error) {
	key, err := fsutil.ReadPrivate(path, maxToken)
	if err != nil {
		return nil, fmt.Errorf("read JWT key: %w", err)
	}
	return newJWT(bytes.TrimRight(key, "\r\n"), o)
}

func newJWT(key []byte, o JWTOptions) (*JWT, error) {
	j := &JWT{key: key}
	known := o.Algorithm == ""
	for _, m := range jwtSizes {
		known = known || m.name == o.Algorithm
		if len(key) >= m.size && (o.Algorithm == "" || o.Algorithm == m.name) {
			j.methods = append(j.methods, m.name)
		}
	}
	switch {
	case !known:
		return nil, fmt.Errorf("JWT algorithm %q: not HS256, HS384 or HS512", o.Algorithm)
	case len(j.methods) == 0:
		return nil, fmt.Errorf("JWT key: %d bytes are too few for its algorithm", len(key))
	}
	opts := []jwt.ParserOption{jwt.WithValidMethods(j.methods), jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(leeway)}
	if o.Audience != "" {
		opts = append(opts, jwt.WithAudience(o.Audience))
	}
	if o.Issuer != "" {
		opts = append(opts, jwt.WithIssuer(o.Issuer))
	}
	j.parser = jwt.NewParser(opts...)
	return j, nil
}

// jwtClaims are the claims that are read.
type jwtClaims struct {
	jwt.RegisteredClaims
	Namespace string `json:"namespace"`
}

func (j *JWT) caller(token string) (Caller, error) {
	var claims jwtClaims
	_, err := j.parser.ParseWithClaims(token, &claims, func(t *jwt.Token) (any, error) {
		if _, critical := t.Header["crit"]; critical { // RFC 7515, section 4.1.11: extensions that a reader must know
			return nil, jwt.ErrTokenUnverifiable
		}
		return j.key, nil
	})
	if err == nil {
		err = CheckNamespace(claims.Namespace)
	}
	if err != nil {
		return Caller{}, errors.Join(ErrUnauthorized, err)
	}
	name := claims.Subject
	if !isSubject(name) {
		name = "jwt"
	}
	return Caller{Name: name, Namespace: claims.Namespace}, nil
}

// isSubject reports whether a subject is harmless in a log: an id, a name or an e-mail address.
func isSubject(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return s != "" && len(s) <= 128 && strings.Trim(s, letters+"_.-+@|:/") == ""
}
