package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"demesne/internal/peeruser"
)

// attempts bounds how often a client may guess a credential. Each client has a small number of wrong ones; beyond it a
// credential is refused unread, until time has passed. The zero value is ready.
//
// Several users can be behind one address, and a stranger among them must not lock out the others. Therefore:
//
//   - A client of loopback is the user whose process has the other end of the connection, according to the kernel. A guessing
//     user of this machine exhausts only its own attempts.
//   - A credential that was accepted from a client is accepted from it for an hour more, whatever others send meanwhile.
//   - The operator's token is always accepted from the server's own user, whose processes can read it anyway.
//   - The same wrong credential counts once: a program with an old token, which tries for ever, exhausts nothing.
//   - A request without a credential, and a cookie, which an old login leaves behind, count for nothing.
type attempts struct {
	mu  sync.Mutex
	all map[string]*clientAttempts // by client
}

// clientAttempts are one client's attempts. Its credentials are checked one at a time, so that none slips through beside
// others.
type clientAttempts struct {
	seen time.Time // guarded by the lock of all

	mu       sync.Mutex
	left     *rate.Limiter
	wrong    [8]credentialHash // the last ones
	wrongAt  int
	accepted []acceptance
}

type credentialHash [sha256.Size]byte

type acceptance struct {
	hash  credentialHash
	until time.Time
}

// Bounds of attempts. A client has maxWrong at once, and one more after each wrongEvery.
const (
	maxWrong     = 20
	wrongEvery   = 3 * time.Second
	maxAccepted  = 64
	acceptedLife = time.Hour
	maxClients   = 4096
)

// of returns the attempts of a client. In place of one client too many it forgets the one that was not seen for longest.
func (a *attempts) of(client string) *clientAttempts {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.all[client]
	if one == nil {
		if a.all == nil {
			a.all = map[string]*clientAttempts{}
		}
		if len(a.all) >= maxClients {
			oldest := ""
			for name, o := range a.all {
				if oldest == "" || o.seen.Before(a.all[oldest].seen) {
					oldest = name
				}
			}
			delete(a.all, oldest)
		}
		one = &clientAttempts{left: rate.NewLimiter(rate.Every(wrongEvery), maxWrong)}
		a.all[client] = one
	}
	one.seen = time.Now()
	return one
}

// try calls check, which reports whether a credential is right, unless too many were wrong. always is true for a credential
// that is checked in any case.
func (o *clientAttempts) try(hash credentialHash, always bool, check func() bool) (right, checked bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	o.accepted = slices.DeleteFunc(o.accepted, func(k acceptance) bool { return now.After(k.until) })
	at := slices.IndexFunc(o.accepted, func(k acceptance) bool { return k.hash == hash })
	if o.left.Tokens() < 1 && at < 0 && !always {
		return false, false
	}
	if at >= 0 {
		o.accepted = slices.Delete(o.accepted, at, at+1)
	}
	if right = check(); right {
		o.accepted = append(o.accepted[max(0, len(o.accepted)-maxAccepted+1):], acceptance{hash, now.Add(acceptedLife)})
	} else if !slices.Contains(o.wrong[:], hash) {
		o.wrong[o.wrongAt%len(o.wrong)] = hash
		o.wrongAt++
		o.left.Allow()
	}
	return right, true
}

// Try calls check, which reports whether the credential of a request is right, unless the client has sent too many wrong
// ones. Then it answers the request by itself, and answered is true. check does not call Try.
func (a *Access) Try(w http.ResponseWriter, r *http.Request, credential string, check func() bool) (right, answered bool) {
	if credential == "" {
		return check(), false
	}
	client, own := clientOf(r)
	if client == "" {
		return check(), false
	}
	right, checked := a.attempts.of(client).try(sha256.Sum256([]byte(credential)), own && Same(credential, a.Token), check)
	if !checked {
		w.Header().Set("Retry-After", strconv.Itoa(int(wrongEvery/time.Second)))
		Refuse(w, http.StatusTooManyRequests, "too many wrong credentials from this client")
	}
	return right, !checked
}

// Check is Try, and calls refuse without the right credential. It returns false if the request was answered.
func (a *Access) Check(w http.ResponseWriter, r *http.Request, credential string, check func() bool, refuse func()) bool {
	right, answered := a.Try(w, r, credential, check)
	if !right && !answered {
		refuse()
	}
	return right && !answered
}

// clientOf names the client of a request; "": its attempts have no bound, because only the server's user reaches the
// socket, or the kernel does not say which user of this machine it is. own reports whether it is a process of the server's
// user.
func clientOf(r *http.Request) (client string, own bool) {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "", true // a unix socket
	}
	ip := at.Addr().Unmap()
	switch p, _ := r.Context().Value(peerKey{}).(*peer); {
	case ip.IsLoopback() && p == nil:
		return "", false
	case ip.IsLoopback():
		switch uid, err := p.user(); {
		case err == nil:
			return "user " + strconv.Itoa(uid), uid == os.Geteuid()
		case errors.Is(err, peeruser.ErrNone):
			return "no user", false // a client that hides shares its attempts with others that do
		}
		return "", false
	case ip.Is6():
		subscriber, _ := ip.Prefix(64) // who has as many addresses as it likes
		return subscriber.String(), false
	}
	return ip.String(), false
}

type peerKey struct{}

// OwnUser reports whether a request came by a unix socket from a process of the server's user, in the server's user namespace: a
// sandbox's processes are not.
func OwnUser(ctx context.Context) bool {
	p, _ := ctx.Value(peerKey{}).(*peer)
	if p == nil || p.c.LocalAddr().Network() != "unix" {
		return false
	}
	uid, err := p.user()
	return err == nil && uid == os.Geteuid()
}

// withPeer returns the context of a connection's requests, in which clientOf finds its user.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, &peer{c: c})
}

// peer is the other end of a loopback connection. It asks the kernel for its user once.
type peer struct {
	c    net.Conn
	once sync.Once
	uid  int
	err  error
}

func (p *peer) user() (uid int, err error) {
	p.once.Do(func() { p.uid, p.err = peeruser.Of(p.c) })
	return p.uid, p.err
}

// Rates bounds the requests of each namespace. The zero value bounds none. The operator has no bound.
type Rates struct {
	// Of returns the requests a second of a namespace; 0: no bound. nil: no bound for any.
	Of func(namespace string) float64

	mu  sync.Mutex
	all map[string]*rate.Limiter
}

// burst is for how many seconds requests may come at once.
const burst = 2

// limiter returns the limiter of a namespace, or nil. Only namespaces of valid tokens are known.
func (l *Rates) limiter(namespace string) *rate.Limiter {
	if l.Of == nil || namespace == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.all[namespace]; one != nil {
		return one
	}
	n := l.Of(namespace)
	if n <= 0 {
		return nil
	}
	if l.all == nil {
		l.all = map[string]*rate.Limiter{}
	}
	one := rate.NewLimiter(rate.Limit(n), int(math.Ceil(burst*n)))
	l.all[namespace] = one
	return one
}

// Admit counts a request of a namespace. It answers by itself and returns false if there were too many.
func (a *Access) Admit(w http.ResponseWriter, namespace string) bool {
	l := a.Rates.limiter(namespace)
	if l == nil || l.Allow() {
		return true
	}
	wait := time.Duration(float64(time.Second) / float64(l.Limit()))
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	Refuse(w, http.StatusTooManyRequests, "too many requests of this namespace")
	return false
}
