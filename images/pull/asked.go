package pull

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"demesne/images/events"
	"demesne/internal/lazy"
)

// longPause is the wait after a 429 from which on a pull fails at once.
const longPause = 20 * time.Second

// asked ends attempts when a registry asks for a long wait (429, Retry-After). The library then sleeps for up to a
// minute, four times, and says so only in its debug log. TestPullBusy fails if a new release changes that.
var asked = &pauses{waiting: map[*idle]bool{}}

// pauses is a hook for the library's log. It sees the messages of the whole process. It assumes that a message about a pause
// concerns all pulls in the process.
type pauses struct {
	once    sync.Once
	mu      sync.Mutex
	waiting map[*idle]bool
}

// Quiet discards the log of the image libraries, whose errors carry what matters, and lets this package read it.
func Quiet() {
	asked.once.Do(func() {
		logrus.SetOutput(io.Discard)
		logrus.SetLevel(logrus.DebugLevel)
		logrus.AddHook(asked)
	})
}

// add registers an attempt until the returned function is called.
func (p *pauses) add(w *idle) (remove func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting[w] = true
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waiting, w)
	}
}

func (p *pauses) Levels() []logrus.Level { return []logrus.Level{logrus.DebugLevel} }

var retryAfter = lazy.Regexp{Expr: `^Detected 'Retry-After' header ("(?:[^"\\]|\\.){1,100}")$`}

// Fire reads one message.
func (p *pauses) Fire(e *logrus.Entry) error {
	found := retryAfter.Get().FindStringSubmatch(e.Message)
	if found == nil {
		return nil
	}
	text, err := strconv.Unquote(found[1])
	wait := PauseOf(text, time.Now())
	if err != nil || wait < longPause {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.waiting {
		w.stop(&Error{Code: events.CodeBusy, Wait: wait, Err: fmt.Errorf("too many requests: the registry asks to wait: again in %d s", int(wait.Seconds()))})
	}
	return nil
}

// PauseOf parses a Retry-After header: seconds, or a date. It returns 0 for any other text.
func PauseOf(text string, now time.Time) time.Duration {
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(text); err == nil {
		return t.Sub(now).Round(time.Second)
	}
	return 0
}
