package e2b

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"demesne/server"
	"demesne/session"
)

// contextTable has the kernels of a sandbox. They end with the server.
type contextTable struct {
	mu  sync.Mutex
	all []*kernelContext
}

// kernelContext is a kernel, which executes one piece of code at a time. It starts when it is first needed.
type kernelContext struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Dir      string `json:"cwd"`

	main   bool          // the default context of its language
	begun  sync.Once     // the kernel's start, or the context's end before it
	ready  chan struct{} // closed when kernel or err is set
	kernel server.Kernel
	err    error
	turn   chan struct{} // holds one value while code is executed
}

// close ends all kernels.
func (t *contextTable) close() {
	t.mu.Lock()
	all := t.all
	t.all = nil
	t.mu.Unlock()
	for _, c := range all {
		go c.close()
	}
}

// close ends the kernel. A kernel that has not started never does.
func (c *kernelContext) close() {
	c.begun.Do(func() {
		c.err = errContext
		close(c.ready)
	})
	<-c.ready
	if c.kernel != nil {
		c.kernel.Close()
	}
}

// maxContexts bounds the kernels of a sandbox.
const maxContexts = 64

// names are the languages' short names in E2B's API.
var names = map[string]string{"": "python", "py": "python", "js": "javascript", "ts": "typescript"}

func languageOf(word string) string {
	word = strings.ToLower(word)
	if full, ok := names[word]; ok {
		return full
	}
	return word
}

var errContext = errors.New("context not found")

// find returns the context with an id, or the default one of a language, which it makes.
func (t *contextTable) find(id, language string) (*kernelContext, error) {
	t.mu.Lock()
	for _, c := range t.all {
		if id != "" && c.ID == id || id == "" && c.main && c.Language == languageOf(language) {
			t.mu.Unlock()
			return c, nil
		}
	}
	t.mu.Unlock()
	if id != "" {
		return nil, errContext
	}
	return t.add(language, "", true)
}

func newContext(language, dir string, main bool) *kernelContext {
	return &kernelContext{
		ID: newID(), Language: languageOf(language), Dir: cmp.Or(dir, defaultHome), main: main,
		ready: make(chan struct{}), turn: make(chan struct{}, 1),
	}
}

// add adds a context, which outlives the call that made it.
func (t *contextTable) add(language, dir string, main bool) (*kernelContext, error) {
	c := newContext(language, dir, main)
	t.mu.Lock()
	for _, o := range t.all {
		if main && o.main && o.Language == c.Language { // a concurrent call was faster
			t.mu.Unlock()
			return o, nil
		}
	}
	if len(t.all) >= maxContexts {
		t.mu.Unlock()
		return nil, fmt.Errorf("%w: the sandbox has %d contexts", session.ErrBusy, maxContexts)
	}
	t.all = append(t.all, c)
	t.mu.Unlock()
	return c, nil
}

//go:embed results.py
var results string

// preludes has the code that kernels execute at their start, by language.
var preludes = map[string]string{"python": results}

// startTime bounds the start of a kernel.
const startTime = time.Minute

func (c *kernelContext) start(e *entry, t *contextTable) {
	defer close(c.ready)
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	a, err := e.account(ctx, defaultUser)
	if err == nil {
		dir := c.Dir
		if dir == defaultHome {
			dir = a.home
		}
		err = e.with(ctx, func(sb server.Sandbox) (err error) {
			c.kernel, err = sb.Kernel(ctx, server.KernelOptions{Language: c.Language, Prelude: preludes[c.Language], Dir: dir, User: a.user, Env: e.environ(a, nil)})
			return err
		})
	}
	if c.err = err; err != nil {
		t.remove(c)
	}
}

func (t *contextTable) remove(c *kernelContext) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, o := range t.all {
		if o == c {
			t.all = append(t.all[:i:i], t.all[i+1:]...)
			return true
		}
	}
	return false
}

// wait starts the kernel unless another call has done so, and waits until it has started.
func (c *kernelContext) wait(ctx context.Context, e *entry) error {
	go c.begun.Do(func() { c.start(e, &e.contexts) })
	select {
	case <-c.ready:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// interpret serves the code interpreter. Its errors are plain text. Only /execute carries the access token: the SDKs send none
// with calls about contexts. The ids of contexts and of the sandbox cannot be guessed.
func (s *Server) interpret(w http.ResponseWriter, r *http.Request) {
	e := entryOf(r.Context())
	r.Body = http.MaxBytesReader(w, r.Body, maxCodeBody)
	rest, inContexts := strings.CutPrefix(r.URL.Path, "/contexts")
	parts := strings.Split(strings.Trim(rest, "/"), "/")
	var err error
	switch {
	case r.URL.Path == "/health":
		empty(w)
	case r.URL.Path == "/execute" && r.Method == http.MethodPost:
		if s.opts.Access.Check(w, r, r.Header.Get("X-Access-Token"), func() bool { return e.hasToken(r) }, func() {
			http.Error(w, "the access token is not this sandbox's", http.StatusUnauthorized)
		}) {
			s.execute(w, r, e)
		}
		return
	case rest == "" && inContexts && r.Method == http.MethodPost:
		err = e.newContext(w, r)
	case rest == "" && inContexts && r.Method == http.MethodGet:
		answer(w, http.StatusOK, e.contexts.list())
	case inContexts && len(parts) == 1 && r.Method == http.MethodDelete:
		err = e.removeContext(parts[0])
	case inContexts && len(parts) == 2 && parts[1] == "restart" && r.Method == http.MethodPost:
		err = e.restartContext(r.Context(), parts[0])
	default:
		http.Error(w, "demesne does not serve "+r.Method+" "+r.URL.Path, http.StatusNotFound)
		return
	}
	switch {
	case errors.Is(err, errContext):
		http.Error(w, err.Error(), http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), statusOf(err))
	case r.Method == http.MethodDelete || len(parts) == 2:
		empty(w)
	}
}

// alwaysListed are the languages whose default contexts are always in the list, as E2B's servers start these with a sandbox. Here
// the first use starts them.
var alwaysListed = []string{"python", "javascript"}

func (t *contextTable) list() []*kernelContext {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, language := range alwaysListed {
		if !slices.ContainsFunc(t.all, func(c *kernelContext) bool { return c.main && c.Language == language }) {
			t.all = slices.Insert(t.all, min(i, len(t.all)), newContext(language, "", true)) // before those that a client made
		}
	}
	return append([]*kernelContext{}, t.all...)
}

func (e *entry) newContext(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Language string `json:"language"`
		Dir      string `json:"cwd"`
	}
	if err := body(r, &q); err != nil {
		return err
	}
	c, err := e.contexts.add(q.Language, q.Dir, false)
	if err == nil {
		err = c.wait(r.Context(), e)
	}
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, c)
}

func (e *entry) removeContext(id string) error {
	c, err := e.contexts.find(id, "")
	if err != nil || !e.contexts.remove(c) {
		return errContext
	}
	go c.close()
	return nil
}

func (e *entry) restartContext(ctx context.Context, id string) error {
	c, err := e.contexts.find(id, "")
	if err == nil {
		err = c.wait(ctx, e)
	}
	if err != nil {
		return err
	}
	return c.kernel.Restart(ctx)
}

// ascii encodes v with every character beyond ASCII escaped: the SDKs decode each network chunk by itself, and would
// damage a character that is split.
func ascii(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		raw = []byte(`{"type":"error","name":"EncodingError","value":"an output is not JSON","traceback":""}`)
	}
	out := make([]byte, 0, len(raw)+1)
	for len(raw) > 0 {
		r, n := utf8.DecodeRune(raw)
		switch {
		case r < utf8.RuneSelf:
			out = append(out, raw[0])
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		raw = raw[n:]
	}
	return append(out, '\n')
}
