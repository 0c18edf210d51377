package server

import (
	"errors"
	"net/http"
	"strings"

	"demesne/runner"
)

// ErrUnauthorized reports that a request has no credential that this server accepts.
var ErrUnauthorized = errors.New("no valid token")

// Access decides which caller a request is from. A caller is the operator, or belongs to a namespace: then it has the
// token of that namespace, or a JWT that names it. Its methods may be called concurrently.
type Access struct {
	Token  string  // the operator's
	Tokens *Tokens // of namespaces; nil: none
	JWT    *JWT    // nil: none is accepted
	Logins Logins  // of browsers
	Rates  Rates

	attempts attempts // with wrong credentials
}

// namespaceHeader names a namespace. With it, the operator's request counts as a request from that namespace.
const namespaceHeader = "Demesne-Namespace"

// maxCredential bounds a token, in bytes.
const maxCredential = 8 << 10

// Caller returns the sender of a request, by its header Authorization or X-API-KEY, or by the cookie of a login.
func (a *Access) Caller(r *http.Request) (Caller, error) {
	token, given := credential(r)
	if !given {
		var err error
		if token, err = a.Logins.token(r); err != nil {
			return Caller{}, err
		}
	}
	c, err := a.Of(token)
	if ns := r.Header.Get(namespaceHeader); err == nil && c.Operator && ns != "" {
		if !runner.IsNamespace(ns) {
			return Caller{}, ErrUnauthorized
		}
		c = Caller{Name: c.Name, Namespace: ns}
	}
	return c, err
}

// credential returns the token in a request's headers.
func credential(r *http.Request) (token string, given bool) {
	if token = r.Header.Get("X-API-KEY"); token != "" {
		return token, true
	}
	scheme, rest, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.TrimSpace(rest), true
}

// Of returns the caller that a token stands for.
func (a *Access) Of(token string) (Caller, error) {
	switch {
	case token == "" || len(token) > maxCredential:
		return Caller{}, ErrUnauthorized
	case Same(token, a.Token):
		return Operator, nil
	case a.JWT != nil && strings.Count(token, ".") == 2:
		return a.JWT.caller(token)
	}
	return a.Tokens.caller(token)
}

// Authenticate returns the sender of a request. It answers by itself and returns false without one: refuse says that
// the credential is wrong.
func (a *Access) Authenticate(w http.ResponseWriter, r *http.Request, refuse func()) (c Caller, ok bool) {
	token, _ := credential(r)
	ok, answered := a.Try(w, r, token, func() bool {
		var err error
		c, err = a.Caller(r)
		return err == nil
	})
	if !ok && !answered {
		refuse()
	}
	return c, ok
}

// Handler passes requests with a valid credential to h, with their [Caller].
func (a *Access) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := a.Authenticate(w, r, func() {
			w.Header().Set("WWW-Authenticate", "Bearer")
			Refuse(w, http.StatusUnauthorized, ErrUnauthorized.Error())
		})
		if ok && a.Admit(w, c.Namespace) {
			h.ServeHTTP(w, withoutHalf(r.WithContext(WithCaller(r.Context(), c))))
		}
	})
}

// Strip removes the credentials of this server from the headers of a request that goes to a program in a sandbox. A
// credential of that program's own stays.
func (a *Access) Strip(h http.Header) {
	h.Del("X-API-KEY")
	h.Del(halfHeader)
	r := http.Request{Header: h}
	if token, given := credential(&r); given {
		if _, err := a.Of(token); err == nil {
			h.Del("Authorization")
		}
	}
	cookies := r.Cookies()
	h.Del("Cookie")
	for _, c := range cookies {
		if !isLoginCookie(c.Name) {
			r.AddCookie(c)
		}
	}
}
