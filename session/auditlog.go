package session

import (
	"context"
	"fmt"
	"os"
	"sync"

	"demesne/internal/text"
	"demesne/runner"
	"demesne/session/audit"
	"demesne/session/events"
)

// auditTo returns an Observe that appends to the log of a directory. A failure is reported once, and nothing fails with
// it.
func auditTo(dir string, as runner.Frontend) func(context.Context, events.Event) {
	open := sync.OnceValues(func() (*audit.Log, error) { return audit.Open(dir) })
	var once sync.Once
	return func(_ context.Context, e events.Event) {
		log, err := open()
		if err == nil {
			e.Caller = as.String()
			if e.Namespace == "" {
				e.Namespace = as.Namespace()
			}
			_, err = log.Append(e)
		}
		if err != nil {
			once.Do(func() { fmt.Fprintf(os.Stderr, "demesne: %s: %s\n", audit.Variable, text.SafeLine(err.Error())) })
		}
	}
}
