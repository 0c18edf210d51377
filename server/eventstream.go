package server

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Times of an event stream, and of other answers that go on.
const (
	PingTime  = 15 * time.Second // between comments, which keep proxies from closing the connection
	StallTime = 30 * time.Second // a client that takes nothing for so long is dropped
)

// EventStream sends server-sent events, each at once. It is safe for concurrent use. After an error it sends nothing.
type EventStream struct {
	mu  sync.Mutex
	w   http.ResponseWriter
	c   *http.ResponseController
	err error
}

// NewEventStream returns a stream, and sets its headers. The first event begins the answer.
func NewEventStream(w http.ResponseWriter) *EventStream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	return &EventStream{w: w, c: http.NewResponseController(w)}
}

// Send sends an event. Without an id the client keeps its last one.
func (s *EventStream) Send(id, event string, data []byte) error {
	text := fmt.Sprintf("event: %s\ndata: %s\n\n", event, data)
	if id != "" {
		text = "id: " + id + "\n" + text
	}
	return s.write(text)
}

// Comment sends a line that is not an event.
func (s *EventStream) Comment(text string) error { return s.write(": " + text + "\n\n") }

func (s *EventStream) write(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.c.SetWriteDeadline(time.Now().Add(StallTime)) // not every connection has deadlines
	if _, s.err = s.w.Write([]byte(text)); s.err == nil {
		s.err = s.c.Flush()
	}
	s.c.SetWriteDeadline(time.Time{})
	return s.err
}

// Close waits for a write in progress, and lets none begin: the ResponseWriter is invalid once the handler has returned.
func (s *EventStream) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = http.ErrHandlerTimeout
	}
}
