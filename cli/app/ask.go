package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/cli/stream"
	"demesne/internal/fsutil"
	"demesne/internal/text"
)

// AskSecret asks for a secret, which the terminal does not show.
func (c *Console) AskSecret(ctx context.Context, prompt, hint string) (string, error) {
	return c.Ask(ctx, prompt, false, hint)
}

// Ask reads a line from the terminal. A signal ends the wait.
func (c *Console) Ask(ctx context.Context, prompt string, echo bool, hint string) (string, error) {
	if !stream.IsTerminal(c.Stdin) {
		return "", text.Hinted(errors.New("stdin is not a terminal, so it cannot be asked for a name or a password"), "%s", hint)
	}
	if !echo {
		restore, err := hideTyping(stream.FD(c.Stdin))
		if err != nil {
			return "", err
		}
		defer restore()
	}
	fmt.Fprint(c.Stderr, prompt)
	type answer struct {
		text string
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		text, err := bufio.NewReaderSize(oneByte{c.Stdin}, 16).ReadString('\n')
		got <- answer{text, err}
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(c.Stderr)
		return "", ctx.Err()
	case a := <-got:
		if !echo || a.err != nil {
			fmt.Fprintln(c.Stderr)
		}
		text := strings.TrimRight(a.text, "\r\n")
		if text == "" {
			return "", errors.New("nothing was typed")
		}
		return text, nil
	}
}

// oneByte reads a byte at a time, so that nothing after the line is taken from the terminal.
type oneByte struct{ io.Reader }

func (r oneByte) Read(b []byte) (int, error) { return r.Reader.Read(b[:min(1, len(b))]) }

// hideTyping turns off the echo of a terminal.
func hideTyping(fd int) (restore func(), err error) {
	saved, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, os.NewSyscallError("tcgetattr", err)
	}
	hidden := *saved
	hidden.Lflag &^= unix.ECHO
	hidden.Lflag |= unix.ICANON | unix.ISIG
	if err := unix.IoctlSetTermios(fd, unix.TCSETSF, &hidden); err != nil {
		return nil, os.NewSyscallError("tcsetattr", err)
	}
	return func() { unix.IoctlSetTermios(fd, unix.TCSETSF, saved) }, nil
}

// maxSecret is the length of the longest password.
const maxSecret = 64 << 10

// ReadSecret reads a secret to the end of a file, without the line end that echo adds.
func ReadSecret(r io.Reader, what string) (string, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxSecret+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read %s: %w", what, fsutil.Reason(err))
	case len(text) > maxSecret:
		return "", fmt.Errorf("read %s: longer than %d bytes", what, maxSecret)
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if secret == "" {
		return "", fmt.Errorf("read %s: empty", what)
	}
	return secret, nil
}

// OpenQuestions makes the command share the terminal with questions.
func (a *App) OpenQuestions() {
	if a.Floor == nil {
		a.Floor, a.Answers = make(stream.Floor, 1), &stream.Answers{}
	}
}

// Question asks the user at the terminal. It is not answered after wait, and where there is no terminal.
func (a *App) Question(words string, wait time.Duration) (yes, answered bool) {
	late := time.Now().Add(wait)
	defer a.Floor.Take(nil)()
	f, err := os.OpenFile(stream.Controlling, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil || !time.Now().Before(late) {
		return false, false
	}
	defer f.Close()
	line, err := a.Answers.Line(f, "demesne: "+text.SafeLine(words)+" [y/N] ", late)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		fmt.Fprintf(f, "no answer in %v: denied for now\n", wait)
		return false, false
	}
	if err != nil {
		fmt.Fprintln(f)
	}
	return stream.IsYes(line), true
}
