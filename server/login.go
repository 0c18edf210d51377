package server

import (
	"crypto/rand"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Logins are the browsers that have shown a token. Each has two halves of a random secret instead. One is a cookie, which
// no script can read. Browsers send the cookies of a host name to each of its ports, so a program in a sandbox whose
// published port a person opens receives it. The other half is in the storage of the page's origin, which has the port. The
// page sends it in a header. The zero value has no logins. Logins end with the server.
type Logins struct {
	mu  sync.Mutex
	all map[string]login // by cookie
}

type login struct {
	token string
	half  string // what the page sends
	ends  time.Time
}

const (
	loginCookie = "demesne_login" // and the port: the servers of one machine have a login each
	loginLife   = 12 * time.Hour
	maxLogins   = 1000
)

// A request with a login's cookie has its other half in halfHeader. One for a WebSocket has it in halfQuery, because its
// page sets no headers.
const (
	halfHeader = "Demesne-Login"
	halfQuery  = "login"
)

// Login checks a token. It sets a cookie with one half of the login, and returns the other half. The login ends with the
// token.
func (a *Access) Login(w http.ResponseWriter, r *http.Request, token string) (c Caller, half string, err error) {
	if c, err = a.Of(token); err != nil || !fromOwnPage(r) {
		return Caller{}, "", ErrUnauthorized
	}
	id, half := rand.Text()+rand.Text(), rand.Text()+rand.Text()
	a.Logins.add(id, login{token, half, time.Now().Add(loginLife)})
	http.SetCookie(w, cookieOf(r, id, int(loginLife/time.Second)))
	return c, half, nil
}

// Logout ends a browser's login.
func (a *Access) Logout(w http.ResponseWriter, r *http.Request) {
	if all := r.CookiesNamed(loginName(r)); len(all) > 0 && fromOwnPage(r) {
		for _, c := range all {
			a.Logins.remove(c.Value)
		}
		http.SetCookie(w, cookieOf(r, "", -1))
	}
}

// loginName returns the name of this server's cookie.
func loginName(r *http.Request) string {
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		return loginCookie + "_" + port
	}
	return loginCookie
}

func cookieOf(r *http.Request, value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: loginName(r), Value: value, Path: "/", MaxAge: age,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	}
}

func (l *Logins) add(id string, one login) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[string]login{}
	}
	oldest, ends := "", one.ends
	for id, o := range l.all {
		switch {
		case time.Now().After(o.ends):
			delete(l.all, id)
		case o.ends.Before(ends):
			oldest, ends = id, o.ends
		}
	}
	if len(l.all) >= maxLogins {
		delete(l.all, oldest)
	}
	l.all[id] = one
}

func (l *Logins) remove(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, id)
}

// token returns the token of the login whose halves a request has.
func (l *Logins) token(r *http.Request) (string, error) {
	if !fromOwnPage(r) {
		return "", ErrUnauthorized
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range r.CookiesNamed(loginName(r)) { // a page of a sandbox can add one, which hides none of the others
		one, ok := l.all[c.Value] // random: its look-up says nothing about others
		if ok && !time.Now().After(one.ends) && (isDocument(r) || Same(halfOf(r), one.half)) {
			return one.token, nil
		}
	}
	return "", ErrUnauthorized
}

// halfOf returns the half of a login that the page sends.
func halfOf(r *http.Request) string {
	if half := r.Header.Get(halfHeader); half != "" || safe(r) {
		return half
	}
	return r.URL.Query().Get(halfQuery)
}

// withoutHalf returns r without its half of a login in the address: handlers refuse parameters that they do not know.
func withoutHalf(r *http.Request) *http.Request {
	q := r.URL.Query()
	if !q.Has(halfQuery) || r.Header.Get("Upgrade") == "" {
		return r
	}
	q.Del(halfQuery)
	r = r.Clone(r.Context())
	r.URL.RawQuery = q.Encode()
	r.RequestURI = r.URL.RequestURI()
	return r
}

// isDocument reports whether a request is for the API's documents, which a browser opens by their address. They are the
// same for every caller.
func isDocument(r *http.Request) bool {
	return safe(r) && (r.URL.Path == "/docs" || strings.HasPrefix(r.URL.Path, "/docs/") || strings.HasPrefix(r.URL.Path, "/v1/openapi."))
}

// fromOwnPage reports whether a request with a cookie is from a page of this very server, and not from another port of
// the same host: for a browser that is the same site. A request that changes something must say where it is from. So must
// the request for a WebSocket, whose page can read the answer.
func fromOwnPage(r *http.Request) bool {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	if site != "" && site != "same-origin" && (site != "none" || !safe(r)) {
		return false
	}
	if origin == "" {
		return safe(r) || site == "same-origin"
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && u.Host == r.Host
}

// safe reports whether a request changes nothing.
func safe(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Upgrade") == ""
}
