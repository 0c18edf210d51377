package server

import (
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rates bounds the requests of each namespace. The zero value bounds none. The operator has no bound.
type Rates struct {
	// Of returns the requests a second of a namespace; 0: no bound. nil: no bound for any.
	Of func(namespace string) float64

	mu  sync.Mutex
	all map[string]*rate.Limiter
}

// burst is for how many seconds requests may come at once.
const burst = 2

// limiter returns the limiter of a namespace, or nil. Namespaces are those of valid tokens.
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
