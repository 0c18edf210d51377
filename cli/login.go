package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/cli/stream"
	"demesne/images"
	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
)

func loginCommand() command {
	return command{
		Command: cmdline.Command{
			Name: "login", Usage: []string{"[--username USER] [--password-stdin] [--tls-verify BOOL] REGISTRY"}, Summary: "store the password of a registry",
			About: `Asks for a user name and a password, checks them with the registry, and stores them where podman and skopeo do: in
auth.json, or in the credential helper that it names. Pulls and pushes of demesne and of these programs use them.

REGISTRY is a host with an optional port. With a path, such as registry.example/team, the password is for the names below
it. By default the file is in $XDG_RUNTIME_DIR, which is empty after a restart of the machine.`,
			Examples: []cmdline.Example{
				{Says: "log in on a terminal", Line: "demesne login registry.example"},
				{Says: "log in in a CI job", Line: `printf %s "$TOKEN" | demesne login --username ci --password-stdin registry.example`},
				{Says: "keep the password beyond a restart", Line: "demesne login --authfile ~/.config/containers/auth.json registry.example"},
			},
			Habits: loginHabits,
		},
		flags: loginFlags, run: cmdLogin,
	}
}

func loginFlags(o *options) cmdline.Flags {
	p := &o.pushOptions
	return append(cmdline.Flags{
		{Group: cmdline.GroupGeneral, Long: "username", Short: 'u', Arg: "USER", Set: cmdline.Text(&p.loginUser), Help: "user name (default: ask on the terminal)"},
		{Group: cmdline.GroupGeneral, Long: "password-stdin", Set: cmdline.On(&p.passwordStdin), Help: "read the password from stdin"},
	}, accessFlags(p)...)
}

func logoutCommand() command {
	return command{
		Command: cmdline.Command{
			Name: "logout", Usage: []string{"[--authfile FILE] REGISTRY", "[--authfile FILE] --all"}, Summary: "remove the password of a registry",
			About: "Removes the password that demesne login or podman login stored for a registry, or with --all every one.",
			Examples: []cmdline.Example{
				{Says: "log out", Line: "demesne logout registry.example"},
				{Says: "remove all stored passwords", Line: "demesne logout --all"},
			},
		},
		flags: logoutFlags, run: cmdLogout,
	}
}

func logoutFlags(o *options) cmdline.Flags {
	return slices.Concat(cmdline.Flags{{Group: cmdline.GroupGeneral, Long: "all", Short: 'a', Set: cmdline.On(&o.allLogins), Help: "remove all stored passwords"}},
		authFileFlag(&o.pushOptions))
}

// oneRegistry returns the only operand.
func oneRegistry(args []string) (string, error) {
	switch {
	case len(args) == 0 || args[0] == "":
		return "", hinted(errors.New("needs a registry"), "demesne login REGISTRY, such as registry.example or localhost:5000")
	case len(args) > 1:
		return "", fmt.Errorf("unexpected argument %q", args[1])
	}
	return strings.TrimSuffix(strings.TrimPrefix(args[0], "https://"), "/"), nil
}

func cmdLogin(a *app, o *options, args []string) (int, error) {
	registry, err := oneRegistry(args)
	if err != nil {
		return 0, err
	}
	if o.passwordStdin && o.loginUser == "" {
		return 0, hinted(errors.New("--password-stdin needs a user name"), "--username USER")
	}
	t := imageTool{a}
	return t.with(func(ctx context.Context, c *images.Client) (int, error) {
		c.TLSVerify, c.AuthFile = o.tlsVerify, o.authFile
		user, password, err := t.credentials(ctx, &o.pushOptions)
		if err != nil {
			return 0, err
		}
		where, err := c.Login(ctx, registry, user, password, a.newProgress(false, "login").take)
		if err != nil {
			return 0, err
		}
		return t.print(fmt.Sprintf("logged in to %s as %s; stored in %s\n", registry, user, where))
	})
}

func cmdLogout(a *app, o *options, args []string) (int, error) {
	registry := ""
	var err error
	switch {
	case o.allLogins && len(args) > 0:
		return 0, fmt.Errorf("unexpected argument %q with --all", args[0])
	case !o.allLogins:
		if registry, err = oneRegistry(args); err != nil {
			return 0, err
		}
	}
	return imageTool{a}.with(func(ctx context.Context, c *images.Client) (int, error) {
		c.AuthFile = o.authFile
		return 0, c.Logout(ctx, registry)
	})
}

// credentials returns the user name and the password, which it asks for where no flag says where they are.
func (t imageTool) credentials(ctx context.Context, p *pushOptions) (user, password string, err error) {
	if user = p.loginUser; user == "" {
		if user, err = t.ask(ctx, "Username: ", true, "--username USER"); err != nil {
			return "", "", err
		}
	}
	if strings.Contains(user, ":") {
		return "", "", fmt.Errorf("user name %q: has a colon", user)
	}
	if p.passwordStdin {
		password, err = readSecret(t.Stdin, "password")
	} else {
		password, err = t.askSecret(ctx, "Password: ", "--password-stdin reads it from a pipe")
	}
	return user, password, err
}

// askSecret asks for a secret, which the terminal does not show.
func (c *console) askSecret(ctx context.Context, prompt, hint string) (string, error) {
	return c.ask(ctx, prompt, false, hint)
}

// ask reads a line from the terminal. A signal ends the wait.
func (c *console) ask(ctx context.Context, prompt string, echo bool, hint string) (string, error) {
	if !stream.IsTerminal(c.Stdin) {
		return "", hinted(errors.New("stdin is not a terminal, so it cannot be asked for a name or a password"), "%s", hint)
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

func secretFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read passphrase %q: %w", path, fsutil.Reason(err))
	}
	defer f.Close()
	return readSecret(f, "passphrase")
}

// readSecret reads a secret to the end of a file, without the line end that echo adds.
func readSecret(r io.Reader, what string) (string, error) {
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
