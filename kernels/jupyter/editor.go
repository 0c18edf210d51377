package jupyter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"demesne/internal/fsutil"
	"demesne/kernels/languages"
)

// askTime bounds how long a key press waits for the kernel.
const askTime = 2 * time.Second

// editor reads inputs on a terminal: lines, until the kernel says that they are complete.
type editor struct {
	ctx      context.Context
	loop     *loop
	terminal *term.Terminal
	keys     *keys
	saved    *term.State
	history  *history
	prompts  [2]string
	before   string // the lines of the current input above the one that is edited
	python   bool
	listed   string // the line whose completions were listed last
}

// prompts are a language's: for a first line, and for more.
var prompts = map[string][2]string{"python": {">>> ", "... "}, "r": {"> ", "+ "}}

func newEditor(ctx context.Context, l *loop, language languages.Language) (*editor, error) {
	e := &editor{ctx: ctx, loop: l, keys: &keys{ctx: ctx, from: l.Stdin}, prompts: [2]string{"> ", "... "}, python: language.Name == "python"}
	if p, ok := prompts[language.Name]; ok {
		e.prompts = p
	}
	dir, err := fsutil.StateDir("repl")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make %q: %w", dir, fsutil.Reason(err))
	}
	e.history = openHistory(filepath.Join(dir, language.Name+".history"))
	e.reset()
	e.terminal.SetBracketedPasteMode(true)
	return e, nil
}

// reset begins with an empty line: term.Terminal keeps one that Ctrl-C has ended.
func (e *editor) reset() {
	e.terminal = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{e.keys, e.loop.Stdout}, e.prompts[0])
	e.terminal.AutoCompleteCallback = e.complete
	e.terminal.History = e.history
}

// close leaves the terminal as it was.
func (e *editor) close() {
	e.terminal.SetBracketedPasteMode(false)
	e.cooked()
}

func (e *editor) raw() (err error) {
	e.saved, err = term.MakeRaw(int(e.loop.Stdin.Fd()))
	return err
}

func (e *editor) cooked() {
	if e.saved != nil {
		term.Restore(int(e.loop.Stdin.Fd()), e.saved)
		e.saved = nil
	}
}

// read returns the next input. It is empty after Ctrl-C, and the error is io.EOF after Ctrl-D.
func (e *editor) read() (string, error) {
	if err := e.raw(); err != nil {
		return "", err
	}
	defer e.cooked()
	if columns, rows, err := term.GetSize(int(e.loop.Stdout.Fd())); err == nil && columns > 0 && rows > 0 {
		e.terminal.SetSize(columns, rows)
	}
	e.before = ""
	e.terminal.SetPrompt(e.prompts[0])
	for {
		line, err := e.terminal.ReadLine()
		pasted := errors.Is(err, term.ErrPasteIndicator)
		switch {
		case err != nil && !pasted && e.ctx.Err() == nil && (e.keys.interrupted() || e.before != ""):
			io.WriteString(e.loop.Stdout, "^C\r\n")
			e.reset()
			return "", nil
		case err != nil && !pasted:
			return "", err
		}
		source := e.before + line
		if !pasted && e.isComplete(source) {
			return source, nil
		}
		e.before = source + "\n"
		e.terminal.SetPrompt(e.prompts[1])
	}
}

// withdrawn reports whether Ctrl-C was typed after an input, while the terminal did not yet make a signal of it. It keeps
// what else was typed ahead.
func (e *editor) withdrawn() bool {
	typed := e.keys.readFor(0, func(b []byte) bool { return len(b) > 0 })
	all := append(e.keys.pending, bytes.ReplaceAll(typed, []byte("\n"), []byte("\r"))...)
	at := bytes.LastIndexByte(all, 3)
	e.keys.pending = all[at+1:]
	return at >= 0
}

// isComplete asks the kernel whether an input is complete. Without an answer it is.
func (e *editor) isComplete(source string) bool {
	if strings.TrimSpace(source) == "" {
		return true
	}
	// An empty line ends a block of Python, as in its own prompt.
	last := source[strings.LastIndexByte(source, '\n')+1:]
	if e.python && len(last) < len(source) && strings.TrimSpace(last) != "" && strings.TrimLeft(last, " \t") != last {
		e.keys.inject(last[:len(last)-len(strings.TrimLeft(last, " \t"))])
		return false
	}
	ctx, cancel := context.WithTimeout(e.ctx, askTime)
	defer cancel()
	status, indent, err := e.loop.session.Kernel().IsComplete(ctx, source)
	if err != nil || status != "incomplete" {
		return true
	}
	if indent == "" && e.python && strings.HasSuffix(strings.TrimRight(last, " "), ":") {
		indent = last[:len(last)-len(strings.TrimLeft(last, " \t"))] + "    "
	}
	e.keys.inject(strings.ReplaceAll(indent, "\t", "    "))
	return false
}

// complete is called for each key that edits nothing else. It completes the name before the cursor at a tab.
func (e *editor) complete(line string, at int, key rune) (string, int, bool) {
	if key != '\t' {
		return "", 0, false
	}
	if strings.TrimSpace(line[:at]) == "" {
		return line[:at] + "    " + line[at:], at + 4, true
	}
	ctx, cancel := context.WithTimeout(e.ctx, askTime)
	defer cancel()
	found, start, end, err := e.loop.session.Kernel().Complete(ctx, e.before+line, len(e.before)+at)
	start -= len(e.before)
	if end -= len(e.before); err != nil || start < 0 || end < start || end > len(line) {
		return "", 0, false
	}
	found = printable(found)
	if len(found) == 0 {
		return line, at, true
	}
	typed, common := line[start:end], commonPrefix(found)
	if len(found) > 1 && (common == typed || !strings.HasPrefix(common, typed)) {
		if e.listed == line {
			e.list(found)
		}
		e.listed = line
		return line, at, true
	}
	e.listed = line[:start] + common + line[end:]
	return e.listed, start + len(common), true
}

// maxListed bounds the completions that are listed.
const maxListed = 100

// list prints completions above the line.
func (e *editor) list(found []string) {
	more := ""
	if len(found) > maxListed {
		more = fmt.Sprintf("  … and %d more", len(found)-maxListed)
		found = found[:maxListed]
	}
	e.terminal.Write([]byte(strings.Join(found, "  ") + more + "\n"))
}

// printable drops completions that a line cannot have: they come from the sandbox.
func printable(found []string) (kept []string) {
	for _, s := range found {
		if len(s) <= 200 && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) {
			kept = append(kept, s)
		}
	}
	return kept
}

func commonPrefix(all []string) string {
	common := []rune(all[0])
	for _, s := range all[1:] {
		r := []rune(s)
		n := 0
		for n < len(common) && n < len(r) && common[n] == r[n] {
			n++
		}
		common = common[:n]
	}
	return string(common)
}

// keys is the terminal's input. It notices Ctrl-C, which ends term.Terminal's line like Ctrl-D. It passes on one line at a
// time, so that what comes before the next one can be injected.
type keys struct {
	ctx     context.Context
	from    *os.File
	pending []byte // read before what from has
	ctrlC   bool
}

func (k *keys) Read(b []byte) (n int, err error) {
	if len(k.pending) == 0 {
		all := make([]byte, len(b))
		if n, err = k.wait(all); n == 0 {
			return n, err
		}
		k.pending = all[:n]
	}
	n = len(k.pending)
	if at := bytes.IndexByte(k.pending, '\r'); at >= 0 {
		n = at + 1
	}
	n = copy(b, k.pending[:n])
	k.pending = k.pending[n:]
	k.ctrlC = k.ctrlC || bytes.IndexByte(b[:n], 3) >= 0
	return n, err
}

// wait reads what is typed. It returns io.EOF when the context ends.
func (k *keys) wait(b []byte) (int, error) {
	for k.ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(k.from.Fd()), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, 200); n > 0 {
			return k.from.Read(b)
		} else if err != nil && err != unix.EINTR {
			return 0, err
		}
	}
	return 0, io.EOF
}

func (k *keys) interrupted() bool {
	was := k.ctrlC
	k.ctrlC = false
	return was
}

// inject types s for the user, unless more has been typed already.
func (k *keys) inject(s string) {
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(k.from.Fd()), Events: unix.POLLIN}}, 0); n == 0 && err == nil && len(k.pending) == 0 {
		k.pending = []byte(s)
	}
}

// readFor reads what arrives within a time, until done is satisfied.
func (k *keys) readFor(d time.Duration, done func([]byte) bool) (all []byte) {
	end := time.Now().Add(d)
	buf := make([]byte, 256)
	for len(all) < 4096 && !done(all) {
		left := time.Until(end)
		fds := []unix.PollFd{{Fd: int32(k.from.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, max(0, int(left.Milliseconds())))
		if err == unix.EINTR && left > 0 {
			continue
		}
		if n <= 0 {
			break
		}
		if n, err = k.from.Read(buf); err != nil {
			break
		}
		all = append(all, buf[:n]...)
	}
	return all
}
