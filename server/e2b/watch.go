package e2b

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"

	"demesne/runner/fileops"
	"demesne/server"
	"demesne/server/e2b/envd"
)

// WatchDir sends the changes below a directory until the client leaves.
func (*filesystem) WatchDir(ctx context.Context, q *envd.WatchDirRequest, to *connect.ServerStream[envd.WatchDirResponse]) error {
	e := entryOf(ctx)
	a, err := e.account(ctx, userOf(headers(ctx)))
	if err != nil {
		return rpcError(err)
	}
	w := watching{path: q.GetPath(), recursive: q.GetRecursive(), entry: q.GetIncludeEntry()}
	events, errs := make(chan *envd.FilesystemEvent), make(chan error, 1)
	began := make(chan struct{})
	inner, stop := context.WithCancel(ctx)
	defer stop()
	go func() { errs <- w.run(inner, e, a, func() { close(began) }, events) }()
	select {
	case <-began:
	case err := <-errs:
		return rpcError(err)
	}
	if err := to.Send(&envd.WatchDirResponse{Event: &envd.WatchDirResponse_Start{Start: &envd.WatchDirResponse_StartEvent{}}}); err != nil {
		return err
	}
	idle, end := keepalive(ctx)
	defer end()
	for {
		m := &envd.WatchDirResponse{Event: &envd.WatchDirResponse_Keepalive{Keepalive: &envd.WatchDirResponse_KeepAlive{}}}
		select {
		case <-ctx.Done():
			return streamEnd(ctx)
		case err := <-errs:
			if err == nil {
				err = io.ErrUnexpectedEOF
			}
			return rpcError(err)
		case <-idle:
		case ev := <-events:
			m.Event = &envd.WatchDirResponse_Filesystem{Filesystem: ev}
		}
		if err := to.Send(m); err != nil {
			return err
		}
	}
}

// watching is a watch of a directory.
type watching struct {
	path             string
	recursive, entry bool
}

// run passes the events on until ctx ends. It calls began once the directory is watched.
func (w watching) run(ctx context.Context, e *entry, a account, began func(), events chan<- *envd.FilesystemEvent) error {
	t := fileops.Request{Op: fileops.OpWatch, Path: w.path, Recursive: w.recursive}
	return e.with(ctx, func(sb server.Sandbox) error {
		_, err := sb.Tree(ctx, a.user, a.home, t, nil, func(_ *fileops.Answer, r *bufio.Reader) error {
			began()
			for {
				ev, err := fileops.ReadEvent(r)
				if err != nil {
					return err
				}
				select {
				case events <- w.event(ev):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
		return err
	})
}

// kinds are the types of events.
var kinds = map[string]envd.EventType{
	"create": envd.EventType_EVENT_TYPE_CREATE, "write": envd.EventType_EVENT_TYPE_WRITE, "remove": envd.EventType_EVENT_TYPE_REMOVE,
	"rename": envd.EventType_EVENT_TYPE_RENAME, "chmod": envd.EventType_EVENT_TYPE_CHMOD,
}

func (w watching) event(ev fileops.Event) *envd.FilesystemEvent {
	out := &envd.FilesystemEvent{Name: ev.Name, Type: kinds[ev.Type]}
	if w.entry && ev.Info != nil {
		out.Entry = entryInfo(*ev.Info)
	}
	return out
}

// watcher is a watch whose events a client asks for.
type watcher struct {
	entry *entry
	stop  func()

	mu     sync.Mutex
	events []*envd.FilesystemEvent
	lost   bool
	total  int // of all events
}

// Bounds of the watches whose events clients ask for.
const (
	maxWatchers = 1000 // of all sandboxes
	maxPending  = 10_000

	quiet    = 20 * time.Millisecond  // without an event: the events of the client's earlier calls have arrived
	maxQuiet = 200 * time.Millisecond // how long an answer waits for that
)

// CreateWatcher begins a watch.
func (f *filesystem) CreateWatcher(ctx context.Context, q *envd.CreateWatcherRequest) (*envd.CreateWatcherResponse, error) {
	e := entryOf(ctx)
	a, err := e.account(ctx, userOf(headers(ctx)))
	if err != nil {
		return nil, rpcError(err)
	}
	w := watching{path: q.GetPath(), recursive: q.GetRecursive(), entry: q.GetIncludeEntry()}
	own, stop := context.WithCancel(context.Background())
	kept := &watcher{entry: e, stop: stop}
	id := newID()
	f.mu.Lock()
	full := len(f.watchers) >= maxWatchers
	if f.watchers == nil {
		f.watchers = map[string]*watcher{}
	}
	if !full {
		f.watchers[id] = kept
	}
	f.mu.Unlock()
	if full {
		stop()
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%d watchers exist", maxWatchers))
	}
	events, began, errs := make(chan *envd.FilesystemEvent), make(chan struct{}), make(chan error, 1)
	go func() {
		errs <- w.run(own, e, a, func() { close(began) }, events)
		f.forget(id)
	}()
	go kept.collect(own, events)
	select {
	case <-began:
		return &envd.CreateWatcherResponse{WatcherId: id}, nil
	case err := <-errs:
		return nil, rpcError(err)
	}
}

func (f *filesystem) forget(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w := f.watchers[id]; w != nil {
		w.stop()
		delete(f.watchers, id)
	}
}

func (w *watcher) collect(ctx context.Context, events <-chan *envd.FilesystemEvent) {
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-events:
			w.mu.Lock()
			if w.lost = w.lost || len(w.events) >= maxPending; !w.lost {
				w.events = append(w.events, ev)
			}
			w.total++
			w.mu.Unlock()
		}
	}
}

// settle waits for the events of what the client did before it asked. They come by way of the sandbox.
func (w *watcher) settle(ctx context.Context) {
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.total
	}
	for end := time.Now().Add(maxQuiet); time.Now().Before(end) && ctx.Err() == nil; {
		before := count()
		time.Sleep(quiet)
		if count() == before {
			return
		}
	}
}

// GetWatcherEvents returns the events since the last call.
func (f *filesystem) GetWatcherEvents(ctx context.Context, q *envd.GetWatcherEventsRequest) (*envd.GetWatcherEventsResponse, error) {
	f.mu.Lock()
	w := f.watchers[q.GetWatcherId()]
	f.mu.Unlock()
	if w == nil || w.entry != entryOf(ctx) {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("watcher not found"))
	}
	w.settle(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost {
		w.lost, w.events = false, nil
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("more than %d events were not fetched, and are lost", maxPending))
	}
	a := &envd.GetWatcherEventsResponse{Events: w.events}
	w.events = nil
	return a, nil
}

// RemoveWatcher ends a watch.
func (f *filesystem) RemoveWatcher(ctx context.Context, q *envd.RemoveWatcherRequest) (*envd.RemoveWatcherResponse, error) {
	f.mu.Lock()
	w := f.watchers[q.GetWatcherId()]
	f.mu.Unlock()
	if w == nil || w.entry != entryOf(ctx) {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("watcher not found"))
	}
	f.forget(q.GetWatcherId())
	return &envd.RemoveWatcherResponse{}, nil
}
