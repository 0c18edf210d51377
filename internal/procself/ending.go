package procself

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Ended is the signal with which a context of [Ending] ends: its cause.
type Ended syscall.Signal

func (s Ended) Error() string { return syscall.Signal(s).String() }

// Ending returns a context that ends with the first INT, TERM or HUP. A second INT or TERM exits this process at once:
// the runner removes the sandboxes of its calls. SIGPIPE is ignored, so that a client that disconnects does not end the
// process before it has removed what it made.
func Ending() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	ch := make(chan os.Signal, 4)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	go func() {
		asked := 0
		for sig := range ch {
			if sig == syscall.SIGPIPE {
				continue
			}
			if asked++; asked > 1 && sig != syscall.SIGHUP {
				os.Exit(128 + int(sig.(syscall.Signal)))
			}
			cancel(Ended(sig.(syscall.Signal)))
		}
	}()
	return ctx
}
