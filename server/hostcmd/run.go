package hostcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/client"
	"demesne/internal/fsutil"
)

// Result is the outcome of a request.
type Result struct {
	Kind           Kind
	Exit           int // 128+n after signal n
	TimedOut       bool
	Took           time.Duration
	Stdout, Stderr Stream

	Content []byte // of a file
	Size    int64  // of the whole file
	Next    int64  // offset of the rest, or 0
	Created bool
	Entries []Entry
	Cut     bool // there are more entries
	Skipped int  // entries of a copy that are neither files nor directories, or are private
}

// Stream is the end of an output.
type Stream struct {
	Text  string
	Bytes int64 // of the whole output
}

// Cut reports whether the beginning is missing.
func (s Stream) Cut() bool { return s.Bytes > int64(len(s.Text)) }

// Entry is a file of a directory.
type Entry = client.HostEntry

const (
	longest   = 2 * time.Hour // of one execution, with the waits around it
	killAfter = 2 * time.Second
	pipeWait  = time.Second // for output of processes that a command leaves behind
)

func (g *Guard) execute(ctx context.Context, f *frozen) (res *Result, err error) {
	defer func() {
		if res != nil {
			res.Kind = f.Kind
		}
	}()
	switch f.Kind {
	case Exec:
		return g.runCommand(ctx, f)
	case Read:
		return g.readFile(f)
	case Write:
		return g.writeFile(f)
	case List:
		return g.listDir(f)
	case Copy:
		return g.copyIn(ctx, f)
	}
	return nil, fmt.Errorf("unknown kind %q", f.Kind)
}

// runCommand executes the frozen program in the frozen directory.
func (g *Guard) runCommand(ctx context.Context, f *frozen) (*Result, error) {
	dir, err := f.Dir.reopen(File.sameFile)
	if err != nil {
		return nil, fmt.Errorf("working directory: %w", err)
	}
	defer dir.Close()
	prog, err := f.Program.reopenProgram()
	if err != nil {
		return nil, fmt.Errorf("program: %w", err)
	}
	defer prog.Close()
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	out, errs := g.capture(f.Output), g.capture(f.Output)
	cmd := exec.CommandContext(ctx, f.Program.Path)
	cmd.Args, cmd.Env, cmd.Dir = f.Argv, append(slices.Clip(f.env), RequestVariable+"="+f.ID), fsutil.FDPath(int(dir.Fd())) // the child's chdir uses its copy of the descriptor
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, errs, killAfter+pipeWait
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal: a command cannot answer questions for a person
	if !isScript(prog) {                                 // the interpreter of a script gets its path, and needs it
		cmd.ExtraFiles, cmd.Path = []*os.File{prog}, "/proc/self/fd/3"
	}
	began := time.Now()
	late, err := startAndWait(cmd)
	res := &Result{Took: time.Since(began), TimedOut: late && errors.Is(ctx.Err(), context.DeadlineExceeded), Stdout: out.end(), Stderr: errs.end()}
	if cmd.ProcessState == nil {
		return nil, fmt.Errorf("start %q: %w", f.Argv[0], fsutil.Reason(err))
	}
	if late && !res.TimedOut {
		return nil, fmt.Errorf("run %q: %w", f.Argv[0], ctx.Err())
	}
	res.Exit = exitCode(cmd.ProcessState)
	return res, nil
}

// startAndWait runs cmd. When its context ends, it ends the whole process group: at first with SIGTERM.
func startAndWait(cmd *exec.Cmd) (late bool, err error) {
	var mu sync.Mutex
	var kill *time.Timer
	cmd.Cancel = func() error {
		group := -cmd.Process.Pid
		mu.Lock()
		defer mu.Unlock()
		late = true
		kill = time.AfterFunc(killAfter, func() { unix.Kill(group, unix.SIGKILL) })
		return unix.Kill(group, unix.SIGTERM)
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	err = cmd.Wait()
	mu.Lock()
	defer mu.Unlock()
	if kill != nil && kill.Stop() { // members of the group may live on, and keep its number from others
		unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	}
	return late, err
}

func exitCode(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}

// isScript reports whether an interpreter executes a file.
func isScript(prog *os.File) bool {
	f, err := readable(prog)
	if err != nil {
		return false // it may only be executed
	}
	defer f.Close()
	var magic [2]byte
	_, err = io.ReadFull(f, magic[:])
	return err == nil && string(magic[:]) == "#!"
}

// tail keeps the end of a stream.
type tail struct {
	mu   sync.Mutex
	keep int
	b    []byte
	all  int64
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all += int64(len(p))
	t.b = append(t.b, p[max(0, len(p)-t.keep):]...)
	if over := len(t.b) - t.keep; over > t.keep {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

// captured is a stream on its way through the redaction to its tail.
type captured struct {
	io.Writer
	close func() error
	tail  *tail
}

// capture returns a writer that keeps the end of a stream. Secrets are blanked before it is cut, so that no part of one remains.
func (g *Guard) capture(keep int) *captured {
	t := &tail{keep: keep}
	if g.options.Redact == nil {
		return &captured{t, func() error { return nil }, t}
	}
	w := g.options.Redact(t)
	return &captured{w, w.Close, t}
}

func (c *captured) end() Stream {
	c.close()
	c.tail.mu.Lock()
	defer c.tail.mu.Unlock()
	b := c.tail.b[max(0, len(c.tail.b)-c.tail.keep):]
	return Stream{Text: strings.ToValidUTF8(string(b), "\uFFFD"), Bytes: c.tail.all}
}

// redacted blanks secrets in a text.
func (g *Guard) redacted(s string) string { return string(g.blank([]byte(s))) }

func (g *Guard) blank(b []byte) []byte {
	if g.options.Redact == nil || len(b) == 0 {
		return b
	}
	var to bytes.Buffer
	w := g.options.Redact(&to)
	w.Write(b)
	w.Close()
	return to.Bytes()
}
