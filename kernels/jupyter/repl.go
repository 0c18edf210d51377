package jupyter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"demesne/internal/cmdline"
	"demesne/internal/procself"
	"demesne/internal/text"
	"demesne/kernels"
	"demesne/kernels/code"
	"demesne/kernels/kernelcmd"
	"demesne/runner"
	"demesne/session"
	"golang.org/x/sys/unix"
)

// maxInput bounds the code on a stdin that is not a terminal, in bytes.
const maxInput = 32 << 20

// repl is demesne repl.
func (f *console) repl(o *kernelcmd.Options, args, _ []string) (int, error) {
	language := "python"
	switch {
	case len(args) > 1:
		return 0, fmt.Errorf("unexpected argument %q", args[1])
	case len(args) == 1:
		language = args[0]
	}
	co, err := f.options(o, language)
	if err != nil {
		return 0, text.Hinted(err, "demesne repl --help lists the languages")
	}
	l := &loop{console: f, timeout: o.Timeout, out: cmdline.TerminalOf(f.Stdout, f.Env), errs: cmdline.TerminalOf(f.Stderr, f.Env)}
	if isTerminal(f.Stdin) && isTerminal(f.Stdout) {
		return l.interactive(co)
	}
	return l.piped(co)
}

// loop is the execution of what is typed.
type loop struct {
	*console
	session   *code.Session
	timeout   time.Duration // 0: none
	out, errs cmdline.Terminal
	texts     [2]screen // stdout and stderr
	figures   *figures
}

// start starts the kernel.
func (l *loop) start(ctx context.Context, co code.Options) (stop func(), err error) {
	s := session.New(session.Options{Getenv: l.Getenv})
	k, err := code.Start(ctx, s, co, l.callbacks())
	if err != nil {
		s.Close()
		return nil, err
	}
	l.session = k
	l.tellInstalled(k)
	l.texts[0] = screen{to: l.Stdout, raw: !isTerminal(l.Stdout), colours: l.out.Color}
	l.texts[1] = screen{to: l.Stderr, raw: !isTerminal(l.Stderr), colours: l.errs.Color}
	if l.figures == nil {
		l.figures = &figures{}
	}
	l.figures.files.Dir = k.Sandbox.Out
	return func() { k.Close(); s.Close() }, nil
}

// piped executes all of stdin as one input.
func (l *loop) piped(co code.Options) (int, error) {
	raw, err := io.ReadAll(io.LimitReader(l.Stdin, maxInput+1))
	switch {
	case err != nil:
		return 0, fmt.Errorf("read stdin: %w", err)
	case len(raw) > maxInput:
		return 0, fmt.Errorf("stdin has more than %d MiB of code", maxInput>>20)
	}
	ctx := procself.Ending()
	stop, err := l.start(ctx, co)
	if err != nil {
		return 0, err
	}
	defer stop()
	end := l.execute(ctx, string(raw), nil)
	if ended, ok := errors.AsType[procself.Ended](context.Cause(ctx)); ok {
		return 128 + int(ended), nil
	}
	return end.code, nil
}

// outcome is what an execution means for the program.
type outcome struct {
	code int  // the exit code, if it is the last one
	over bool // the code asked for the end
	died bool // the kernel ended
}

// execute executes code and shows its outputs. took gets each message of the kernel; it may be nil.
func (l *loop) execute(ctx context.Context, source string, took func(*kernels.Message)) outcome {
	res, err := l.session.Execute(ctx, kernels.Execution{Code: source, Timeout: l.timeout, Emit: l.show, Messages: took})
	defer l.texts[1].finish()
	defer l.texts[0].finish()
	var death *code.Death
	switch {
	case errors.As(err, &death):
		return l.died(death)
	case err != nil && res == nil:
		l.say(err.Error())
		return outcome{code: exitFailed}
	case res.TimedOut:
		l.texts[0].finish()
		l.say("interrupted after --timeout " + l.timeout.String())
	}
	if res.Error == nil {
		if res.TimedOut {
			return outcome{code: exitCode}
		}
		return outcome{}
	}
	if res.Error.Type == "SystemExit" {
		return outcome{code: statusOf(res.Error.Message), over: true}
	}
	l.texts[0].finish()
	l.failure(res.Error)
	return outcome{code: exitCode}
}

// statusOf returns the exit code of a Python program that ends by SystemExit with that argument.
func statusOf(argument string) int {
	if n, err := strconv.Atoi(argument); err == nil {
		return n & 0xff
	}
	if argument == "" || argument == "None" {
		return 0
	}
	return exitCode
}

func (l *loop) failure(e *kernels.Error) {
	text := strings.Join(e.Traceback, "\n")
	if strings.TrimSpace(text) == "" {
		text = e.Type + ": " + e.Message
	}
	io.WriteString(l.Stderr, strings.TrimRight(forTerminal(text, l.errs.Color), "\n")+"\n")
}

// died reports the end of the kernel. A program that ends itself ends the loop with its exit code.
func (l *loop) died(d *code.Death) outcome {
	l.texts[0].finish()
	if r := l.session.Kernel().Result(); r != nil && r.Reason == runner.Exited {
		return outcome{code: r.ExitCode, over: true, died: true}
	}
	l.say("the kernel ended: " + d.Reason)
	return outcome{code: exitCode, died: true}
}

// show prints one output of an execution.
func (l *loop) show(o kernels.Output) {
	switch {
	case o.Stdout != "":
		l.texts[0].write(o.Stdout)
	case o.Stderr != "":
		l.texts[1].write(o.Stderr)
	case o.Display != nil:
		l.display(o.Display)
	}
}

// display draws a figure, or prints the text of a value.
func (l *loop) display(b kernels.Bundle) {
	l.texts[0].finish()
	drawn, path, err := l.figures.show(b)
	switch {
	case err != nil:
		l.say(err.Error())
	case drawn != "":
		io.WriteString(l.Stdout, drawn+"\n")
		return
	case path != "":
		l.say("figure: " + path)
		return
	}
	for _, mime := range []string{"text/plain", "text/markdown", "text/latex"} {
		if s, ok := b.Text(mime); ok {
			l.texts[0].write(s + "\n")
			return
		}
	}
}

// interactive reads inputs on the terminal until its end.
func (l *loop) interactive(co code.Options) (int, error) {
	sig := make(chan os.Signal, 8)
	signal.Notify(sig, syscall.SIGINT, syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	ends := make(chan os.Signal, 2)
	signal.Notify(ends, syscall.SIGTERM, syscall.SIGHUP)
	go func() { s := <-ends; cancel(procself.Ended(s.(syscall.Signal))) }()
	stop, err := l.begin(ctx, sig, co)
	if errors.Is(err, errInterrupted) {
		return 128 + int(syscall.SIGINT), nil
	}
	if err != nil {
		return 0, err
	}
	defer stop()
	e, err := newEditor(ctx, l, co.Language)
	if err != nil {
		return 0, err
	}
	defer e.close()
	l.figures.can, l.figures.width = e.probe()
	for {
		source, err := e.read()
		var ended procself.Ended
		switch {
		case errors.As(context.Cause(ctx), &ended):
			return 128 + int(ended), nil
		case errors.Is(err, io.EOF):
			fmt.Fprintln(l.Stdout)
			return 0, nil
		case err != nil:
			return 0, fmt.Errorf("read terminal: %w", err)
		case strings.TrimSpace(source) == "":
			continue
		case e.withdrawn():
			fmt.Fprintln(l.Stdout, "KeyboardInterrupt")
			continue
		}
		switch last := l.interruptible(ctx, sig, source); {
		case last.over:
			return last.code, nil
		case last.died && ctx.Err() == nil:
			if err := l.session.Restart(ctx); err != nil {
				return 0, err
			}
			l.say("a new kernel runs; its variables are lost")
		}
	}
}

// begin starts the kernel. SIGINT meanwhile ends the attempt with errInterrupted.
func (l *loop) begin(ctx context.Context, sig <-chan os.Signal, co code.Options) (stop func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	begun := make(chan struct{})
	defer close(begun)
	go func() {
		for {
			select {
			case s := <-sig:
				if s == syscall.SIGINT {
					cancel(errInterrupted)
				}
			case <-begun:
				return
			}
		}
	}()
	stop, err = l.start(ctx, co)
	if err != nil && context.Cause(ctx) == errInterrupted {
		err = errInterrupted
	}
	return stop, err
}

// interruptible executes code. The first two SIGINT interrupt it, and the third ends the kernel if that does not help.
func (l *loop) interruptible(ctx context.Context, sig <-chan os.Signal, source string) outcome {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done, taken := make(chan struct{}), make(chan struct{})
	defer close(done)
	go func() {
		asked := 0
		for {
			select {
			case <-done:
				return
			case s := <-sig:
				if s != syscall.SIGINT {
					continue
				}
				if asked++; asked == 3 {
					cancel(errInterrupted)
					return
				}
				select { // a kernel ignores an interrupt before it has taken the code
				case <-taken:
				case <-time.After(askTime):
				case <-done:
					return
				}
				l.session.Interrupt()
			}
		}
	}()
	took := sync.OnceFunc(func() { close(taken) })
	return l.execute(ctx, source, func(*kernels.Message) { took() })
}

var errInterrupted = errors.New("interrupted")

// Bounds of the history.
const (
	maxHistory     = 1000    // lines that are recalled
	maxHistoryFile = 1 << 20 // bytes; a larger file is replaced by its last lines
)

// history is what was typed, in a file that only its user can read.
type history struct {
	path string
	all  []string // the oldest first
}

// openHistory reads a history. Without a readable file it begins with none.
func openHistory(path string) *history {
	h := &history{path: path}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return h
	}
	defer f.Close()
	size, _ := f.Seek(0, io.SeekEnd)
	f.Seek(max(0, size-maxHistoryFile), io.SeekStart)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxHistoryFile)
	for lines.Scan() {
		h.all = append(h.all, strings.ToValidUTF8(lines.Text(), "?"))
	}
	h.all = h.all[max(0, len(h.all)-maxHistory):]
	if size > maxHistoryFile {
		if p, err := openPlace(path, ""); err == nil {
			p.replace([]byte(strings.Join(h.all, "\n")+"\n"), 0o600)
			p.close()
		}
	}
	return h
}

// Add adds a line, unless it repeats the last one.
func (h *history) Add(line string) {
	if strings.TrimSpace(line) == "" || len(h.all) > 0 && h.all[len(h.all)-1] == line {
		return
	}
	h.all = append(h.all, line)
	f, err := os.OpenFile(h.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return // the line can still be recalled in this session
	}
	defer f.Close()
	io.WriteString(f, line+"\n")
}

// Len returns the number of lines.
func (h *history) Len() int { return len(h.all) }

// At returns a line; 0 is the newest.
func (h *history) At(i int) string { return h.all[len(h.all)-1-i] }
