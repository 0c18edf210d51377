package code

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"demesne/internal/lazy"
	"demesne/internal/text"
	"demesne/kernels"
	"demesne/runner"
	"demesne/session"
)

// State describes the memory of a session's processes. Its texts come from the sandbox and are untrusted.
type State struct {
	Variables []Variable
	More      int               // variables that are left out
	Unread    string            // why there are no variables; empty: they were read
	Env       map[string]string // of the kernel; the values of what looks like a secret are masked
	Processes []string          // command lines
	Memory    int64             // bytes that the processes use
}

// Variable is a variable of a kernel. Value is its beginning, in the language's own notation.
type Variable struct{ Name, Type, Value string }

// Bounds of a State.
const (
	maxVariables = 200
	maxValue     = 200 // bytes of a text
	maxProcesses = 64
	inspectTime  = 5 * time.Second
)

// Inspect reads the state of a session. It executes code in the kernel that leaves no name behind, unless the kernel
// executes something else, which it would have to wait for.
func (c *Session) Inspect(ctx context.Context) State {
	var s State
	_, idle := c.Idle()
	defer c.Hold()()
	c.processes(ctx, &s)
	switch code := inspectors[c.Language.Name]; {
	case code == "":
		s.Unread = "not available for " + c.Language.Name
	case !idle:
		s.Unread = "the session is busy"
	default:
		c.variables(ctx, &s, code)
	}
	return s
}

// answerMark precedes what an inspector writes.
const answerMark = "\x01demesne-state "

// inspectors are programs that write the variables and the environment as JSON. The placeholder is for answerMark.
var inspectors = map[string]string{
	"python": `exec(` + pythonQuote(inspectPython) + `, {"names": globals()})`,
	"node":   inspectNode,
}

const inspectPython = `
import json, os, reprlib, sys, types
short = reprlib.Repr()
short.maxstring = short.maxother = short.maxlong = 120
plain = (int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset, range, type(None))
hidden = {"In", "Out", "exit", "quit", "get_ipython", "open", "display"}
rows, more = [], 0
for name, value in sorted(names.items()):
    kind = type(value)
    if name.startswith("_") or name in hidden or kind is types.ModuleType:
        continue
    if len(rows) == 200:
        more += 1
        continue
    text = ""
    try:
        if kind in plain:
            text = short.repr(value)
        elif hasattr(kind, "shape"):
            text = "shape " + short.repr(value.shape)
        elif hasattr(kind, "__len__"):
            text = "%d items" % len(value)
    except Exception:
        pass
    module = "" if kind.__module__ in ("builtins", "__main__") else kind.__module__ + "."
    rows.append([name, module + kind.__qualname__, text])
env = {k: v[:200] for k, v in list(os.environ.items())[:200]}
sys.stdout.write(chr(10) + chr(1) + "demesne-state " + json.dumps({"variables": rows, "more": more, "env": env}) + chr(10))
sys.stdout.flush()
`

const inspectNode = `(() => {
const hidden = new Set(('clearImmediate clearInterval clearTimeout setImmediate setInterval setTimeout queueMicrotask structuredClone atob btoa fetch ' +
  'performance navigator crypto console require process Buffer global globalThis module exports display __filename __dirname').split(' '));
const short = (v) => { try {
  if (typeof v === 'function') return '';
  if (typeof v === 'bigint' || typeof v === 'symbol') return String(v);
  if (Array.isArray(v)) return v.length + ' items';
  const s = JSON.stringify(v); return s === undefined ? String(v) : s; } catch { return ''; } };
const kind = (v) => v === null ? 'null' : typeof v === 'object' ? (v.constructor && v.constructor.name || 'Object') : typeof v;
const values = new Map();
for (const name of Object.keys(globalThis)) {
  const d = Object.getOwnPropertyDescriptor(globalThis, name);
  if (d && 'value' in d) values.set(name, d.value);
}
try { // const, let and class
  const s = new (require('inspector').Session)();
  s.connect();
  s.post('Runtime.globalLexicalScopeNames', {}, (e, r) => { for (const n of e ? [] : r.names) try { values.set(n, (0, eval)(n)); } catch {} });
  s.disconnect();
} catch {}
const rows = []; let more = 0;
for (const name of [...values.keys()].sort()) {
  if (hidden.has(name) || name.startsWith('_')) continue;
  if (rows.length === 200) { more++; continue; }
  const value = values.get(name);
  let t = ''; try { t = kind(value); } catch {}
  rows.push([name, t, short(value).slice(0, 200)]);
}
const env = {};
if (typeof process !== 'undefined') for (const k of Object.keys(process.env).slice(0, 200)) env[k] = String(process.env[k]).slice(0, 200);
console.log('\n\x01demesne-state ' + JSON.stringify({variables: rows, more, env}));
})(); undefined`

// pythonQuote returns a literal of Python for an ASCII text.
func pythonQuote(s string) string {
	b, _ := json.Marshal(s) // the escapes that JSON uses for ASCII mean the same
	return string(b)
}

// variables executes an inspector.
func (c *Session) variables(ctx context.Context, s *State, code string) {
	ctx, cancel := context.WithTimeout(ctx, 2*inspectTime)
	defer cancel()
	r, err := c.Execute(ctx, kernels.Execution{Code: code, Silent: true, Timeout: inspectTime})
	if err != nil {
		s.Unread = text.SafeLine(err.Error())
		return
	}
	out := string(r.Stdout.End(kernels.MaxStream))
	_, line, found := strings.Cut(out, answerMark)
	line, _, _ = strings.Cut(line, "\n")
	var a struct {
		Variables [][3]string
		More      int
		Env       map[string]string
	}
	if !found || json.Unmarshal([]byte(line), &a) != nil {
		s.Unread = "the kernel did not answer"
		return
	}
	for _, v := range a.Variables[:min(len(a.Variables), maxVariables)] {
		s.Variables = append(s.Variables, Variable{brief(v[0]), brief(v[1]), brief(v[2])})
	}
	s.More = max(a.More, 0)
	s.Env = map[string]string{}
	for name, value := range a.Env {
		if len(s.Env) == maxVariables {
			break
		}
		if s.Env[brief(name)] = brief(value); secret.Get().MatchString(name) {
			s.Env[brief(name)] = masked
		}
	}
}

// masked replaces a value.
const masked = "***"

// secret matches the names of variables that often hold secrets.
var secret = lazy.Regexp{Expr: `(?i)(key|token|secret|passw|passphrase|credential|auth|cookie|private|signature)`}

// brief returns the beginning of a text of the sandbox.
func brief(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > maxValue {
		s = strings.ToValidUTF8(s[:maxValue], "") + "…"
	}
	return s
}

// listProcesses writes a line for each process: id, resident memory in KiB, and command line.
const listProcesses = `for d in /proc/[0-9]*; do
  p=${d#/proc/}
  rss=0
  parent=
  { while read -r k v _; do
    case $k in VmRSS:) rss=$v ;; PPid:) parent=$v ;; esac
  done; } < "$d/status" || continue
  test "$p" != 1 -a "$p" != $$ -a "$parent" != $$ || continue
  echo "$p $rss $(tr '\0\n\t' '   ' < "$d/cmdline" | head -c 200)"
done 2>/dev/null | head -n 200`

// processes reads the processes of the sandbox. It needs a shell there.
func (c *Session) processes(ctx context.Context, s *State) {
	cmd := runner.Command{Argv: []string{"/bin/sh", "-c", listProcesses}, Dir: "/", Timeout: inspectTime}
	done, err := c.service.Exec(ctx, c.Sandbox.ID, session.RunOptions{Command: cmd}, session.Callbacks{})
	if err != nil {
		return
	}
	for line := range strings.Lines(done.Stdout.Text) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if len(words) < 3 || strings.TrimSpace(words[2]) == "" {
			continue
		}
		kib, _ := strconv.ParseInt(words[1], 10, 64)
		if kib > 0 && kib < 1<<40 {
			s.Memory += kib << 10
		}
		if len(s.Processes) < maxProcesses {
			s.Processes = append(s.Processes, fmt.Sprintf("%s %s", words[0], text.SafeLine(brief(words[2]))))
		}
	}
}
