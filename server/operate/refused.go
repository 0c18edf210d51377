package operate

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"demesne/internal/text"
	"demesne/server"
	"demesne/session/events"
)

// refusals counts refused requests. One entry of the audit log has those of a second: a client that tries tokens must not
// fill the disk.
type refusals struct {
	mu    sync.Mutex
	at    time.Time // of the last entry
	since int       // refused requests without an entry
}

// refusedEvery is the least time between two entries.
const refusedEvery = time.Second

// refused records a request that this server refused, and not a program in a sandbox: that has no route.
func (op *Operator) refused(r *http.Request, status int) {
	if r.Pattern == "" || status != http.StatusUnauthorized && status != http.StatusForbidden && status != http.StatusTooManyRequests {
		return
	}
	op.refusals.mu.Lock()
	op.refusals.since++
	n, due := op.refusals.since, time.Since(op.refusals.at) >= refusedEvery
	if due {
		op.refusals.since, op.refusals.at = 0, time.Now()
	}
	op.refusals.mu.Unlock()
	if !due {
		return
	}
	from, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		from = r.RemoteAddr
	}
	path := text.SafeLine(r.URL.Path) // without the query: it may have a credential
	op.Observe(context.WithoutCancel(r.Context()), events.Event{
		Type: events.AccessRefused, Caller: server.CallerOf(r.Context()).Name,
		Detail: map[string]string{"status": strconv.Itoa(status), "method": method(r.Method), "path": path[:min(len(path), 200)], "from": from, "requests": strconv.Itoa(n)},
	})
}
