package e2b

import (
	"net/http"
	"time"

	"demesne/server"
)

// authorize checks the token that a port of a sandbox needs. It answers by itself and returns false without the right one. A
// paused sandbox is then not found, as one that no request resumes.
func (e *entry) authorize(a *server.Access, w http.ResponseWriter, r *http.Request, port uint16) bool {
	refuse := func(f func()) func() {
		if e.running() {
			return f
		}
		return func() { unfound(w, e.rec.ID) }
	}
	// Exactly one credential is read, and that one is counted. Beside a right one, a guess would not be.
	access, traffic, signature := r.Header.Get("X-Access-Token"), r.Header.Get("E2b-Traffic-Access-Token"), signatureOf(r)
	denied := refuse(func() { server.Refuse(w, http.StatusForbidden, "the sandbox's ports need its traffic token") })
	switch {
	case port == portEnvd && r.URL.Path == "/health", port != portEnvd && e.rec.TrafficToken == "":
		return true
	case port == portEnvd && signature != "" && access == "":
		return a.Check(w, r, signature, func() bool { return e.signed(r, time.Now()) }, refuse(func() { unauthenticated(w, r) }))
	case port == portEnvd:
		return a.Check(w, r, access, func() bool { return e.hasToken(r) }, refuse(func() { unauthenticated(w, r) }))
	case traffic != "":
		return a.Check(w, r, traffic, func() bool { return server.Same(traffic, e.rec.TrafficToken) }, denied)
	}
	return a.Check(w, r, access, func() bool { return e.hasToken(r) }, denied)
}

// hasToken reports whether a request has the sandbox's token.
func (e *entry) hasToken(r *http.Request) bool {
	return server.Same(r.Header.Get("X-Access-Token"), e.rec.Token)
}

// signatureOf returns the signature in the address of a request. One that has expired is not a guess: it is refused unread.
func signatureOf(r *http.Request) string {
	if r.URL.Path != "/files" || expired(r, time.Now()) {
		return ""
	}
	return r.URL.Query().Get("signature")
}
