package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"demesne/internal/lazy"
	"demesne/kernels"
)

// line is one line of the answer to /execute.
type line map[string]any

// lines writes lines, each at once. It is safe for concurrent use.
type lines struct {
	mu   sync.Mutex
	w    http.ResponseWriter
	last time.Time
}

func (l *lines) send(v line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = time.Now()
	l.w.Write(ascii(v))
	http.NewResponseController(l.w).Flush()
}

// idleLine is how long nothing is sent before a keepalive.
const idleLine = 5 * time.Second

// alive sends keepalives until ctx ends.
func (l *lines) alive(ctx context.Context) {
	t := time.NewTicker(idleLine)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		l.mu.Lock()
		idle := time.Since(l.last) >= idleLine
		l.mu.Unlock()
		if idle {
			l.send(line{"type": "keepalive"})
		}
	}
}

// execute executes code, and sends its outputs as they come. A client that leaves interrupts the code.
func (s *Server) execute(w http.ResponseWriter, r *http.Request, e *entry) {
	var q struct {
		Code     string            `json:"code"`
		Context  string            `json:"context_id"`
		Language string            `json:"language"`
		Env      map[string]string `json:"env_vars"`
	}
	if err := malformed(json.NewDecoder(r.Body).Decode(&q)); err != nil {
		http.Error(w, err.Error(), statusOf(err))
		return
	}
	if q.Context != "" && q.Language != "" {
		http.Error(w, "context_id and language: only one of them", http.StatusBadRequest)
		return
	}
	if name, bad := badVariable(q.Env); bad {
		http.Error(w, "env_vars: not a variable: "+name, http.StatusBadRequest)
		return
	}
	c, err := e.contexts.find(q.Context, q.Language)
	if err == nil {
		err = c.wait(r.Context(), e)
	}
	if errors.Is(err, errContext) {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	if err != nil && e.gone() {
		panic(http.ErrAbortHandler) // the SDKs then ask /health, and report that the sandbox was killed
	}
	if err != nil {
		http.Error(w, err.Error(), statusOf(err))
		return
	}
	done, err := s.opts.Queue.Acquire(r.Context())
	if err != nil {
		http.Error(w, err.Error(), statusOf(err))
		return
	}
	defer done()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	out := &lines{w: w}
	http.NewResponseController(w).Flush()
	alive, stop := context.WithCancel(r.Context())
	var side sync.WaitGroup
	side.Go(func() { out.alive(alive) })
	executed, err := c.execute(r.Context(), q.Code, q.Env, out)
	stop()
	side.Wait()
	if err != nil && e.gone() {
		panic(http.ErrAbortHandler)
	}
	out.end(executed, err)
}

// gone reports whether the sandbox was removed, or does not run.
func (e *entry) gone() bool { return e.removed() || !e.running() }

// execute waits for its turn, and executes code with variables that hold only for it.
func (c *kernelContext) execute(ctx context.Context, code string, env map[string]string, out *lines) (*kernels.Result, error) {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-c.turn }()
	before, after := scoped(c.Language, env)
	if before != "" {
		if _, err := c.kernel.Execute(ctx, before, nil); err != nil {
			return nil, err
		}
		defer func() {
			own, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTime)
			defer cancel()
			c.kernel.Execute(own, after, nil)
		}()
	}
	return c.kernel.Execute(ctx, code, out.output)
}

// end sends the end of an execution.
func (l *lines) end(done *kernels.Result, err error) {
	switch {
	case err != nil:
		l.send(line{"type": "error", "name": "KernelError", "value": err.Error(), "traceback": ""})
	case done.Error != nil:
		l.send(line{"type": "error", "name": done.Error.Type, "value": done.Error.Message, "traceback": strings.Join(done.Error.Traceback, "\n")})
	}
	if done != nil {
		l.send(line{"type": "number_of_executions", "execution_count": done.Count})
	}
	l.send(line{"type": "end_of_execution"})
}

func (l *lines) output(o kernels.Output) {
	switch {
	case o.Stdout != "":
		l.send(line{"type": "stdout", "text": o.Stdout, "timestamp": time.Now().UnixNano()})
	case o.Stderr != "":
		l.send(line{"type": "stderr", "text": o.Stderr, "timestamp": time.Now().UnixNano()})
	case o.Display != nil:
		l.send(result(o))
	}
}

// formats are the fields of a result, by MIME type.
var formats = map[string]string{
	"text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "image/png": "png", "image/jpeg": "jpeg",
	"application/pdf": "pdf", "text/latex": "latex", "application/json": "json", "application/javascript": "javascript",
	"e2b/data": "data", "e2b/chart": "chart",
}

// result translates a value in several representations. One that E2B has no name for keeps its MIME type.
func result(o kernels.Output) line {
	l := line{"type": "result", "is_main_result": o.Value}
	for mime, raw := range o.Display {
		key := formats[mime]
		switch {
		case key == "" && (mime == "type" || mime == "is_main_result" || mime == "extra"):
			continue
		case key == "":
			key = mime
		}
		l[key] = json.RawMessage(raw)
		if text, ok := textOf(raw); ok && key != "json" && key != "data" && key != "chart" {
			if key == "text" {
				text = unquoted(text)
			}
			l[key] = text
		}
	}
	return l
}

// textOf returns a text, which may be a list of lines.
func textOf(raw json.RawMessage) (string, bool) {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return one, true
	}
	var parts []string
	if json.Unmarshal(raw, &parts) == nil && parts != nil {
		return strings.Join(parts, ""), true
	}
	return "", false
}

// unquoted drops the quotes of a Python string's representation.
func unquoted(s string) string {
	if len(s) >= 2 && (s[0] == '\'' || s[0] == '"') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}

// scoped returns code that sets variables, and code that restores what they were before.
func scoped(language string, env map[string]string) (before, after string) {
	if len(env) == 0 {
		return "", ""
	}
	raw, err := json.Marshal(env)
	if err != nil {
		return "", ""
	}
	text, err := json.Marshal(string(raw)) // a JSON string is a literal of Python and of JavaScript
	if err != nil {
		return "", ""
	}
	switch language {
	case "python":
		return `def _demesne_set():
    import json, os
    new = json.loads(` + string(text) + `)
    os._demesne_env = {k: os.environ.get(k) for k in new}
    os.environ.update(new)
_demesne_set()
del _demesne_set`, `def _demesne_reset():
    import os
    for k, v in os._demesne_env.items():
        os.environ.pop(k, 0)
        if isinstance(v, str): os.environ[k] = v
    del os._demesne_env
_demesne_reset()
del _demesne_reset`
	case "javascript", "typescript":
		return `globalThis.__demesneEnv = Object.fromEntries(Object.entries(JSON.parse(` + string(text) + `)).map(([k, v]) => { const old = process.env[k]; process.env[k] = v; return [k, old] })); undefined`,
			`for (const [k, v] of Object.entries(globalThis.__demesneEnv)) { if (v === undefined) delete process.env[k]; else process.env[k] = v }; delete globalThis.__demesneEnv; undefined`
	case "r":
		return scopedR(env)
	case "bash":
		return scopedBash(env)
	}
	return "", ""
}

func scopedR(env map[string]string) (before, after string) {
	var names, values []string
	for _, k := range slices.Sorted(maps.Keys(env)) {
		name, _ := json.Marshal(k) // a JSON string is a literal of R
		value, _ := json.Marshal(env[k])
		names, values = append(names, string(name)), append(values, string(name)+" = "+string(value))
	}
	return `invisible(local({
	options(demesne.env = Sys.getenv(c(` + strings.Join(names, ", ") + `), unset = NA, names = TRUE))
	Sys.setenv(` + strings.Join(values, ", ") + `)
}))`, `invisible(local({
	old <- getOption("demesne.env")
	options(demesne.env = NULL)
	Sys.unsetenv(names(old)[is.na(old)])
	if (any(!is.na(old))) do.call(Sys.setenv, as.list(old[!is.na(old)]))
}))`
}

// shellName is the form of a variable's name in a shell.
var shellName = lazy.Regexp{Expr: `^[A-Za-z_][A-Za-z0-9_]*$`}

func scopedBash(env map[string]string) (before, after string) {
	for _, k := range slices.Sorted(maps.Keys(env)) {
		if !shellName.Get().MatchString(k) {
			continue
		}
		old := "__demesne_env_" + k
		before += fmt.Sprintf("[ -z \"${%[1]s+x}\" ] || %[2]s=$%[1]s; export %[1]s='%[3]s'\n", k, old, strings.ReplaceAll(env[k], "'", `'\''`))
		after += fmt.Sprintf("if [ -n \"${%[2]s+x}\" ]; then export %[1]s=\"$%[2]s\"; unset %[2]s; else unset %[1]s; fi\n", k, old)
	}
	return before, after
}
