package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"demesne/cli/app"
	"demesne/cli/progress"
	"demesne/images"
	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
)

func loginCommand() app.Verb {
	return app.Verb{
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
		New: shared(loginFlags, cmdLogin),
	}
}

func loginFlags(o *options) cmdline.Flags {
	p := &o.pushOptions
	return append(cmdline.Flags{
		{Group: cmdline.GroupGeneral, Long: "username", Short: 'u', Arg: "USER", Set: cmdline.Text(&p.loginUser), Help: "user name (default: ask on the terminal)"},
		{Group: cmdline.GroupGeneral, Long: "password-stdin", Set: cmdline.On(&p.passwordStdin), Help: "read the password from stdin"},
	}, accessFlags(p)...)
}

func logoutCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "logout", Usage: []string{"[--authfile FILE] REGISTRY", "[--authfile FILE] --all"}, Summary: "remove the password of a registry",
			About: "Removes the password that demesne login or podman login stored for a registry, or with --all every one.",
			Examples: []cmdline.Example{
				{Says: "log out", Line: "demesne logout registry.example"},
				{Says: "remove all stored passwords", Line: "demesne logout --all"},
			},
		},
		New: shared(logoutFlags, cmdLogout),
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
		return "", app.Hinted(errors.New("needs a registry"), "demesne login REGISTRY, such as registry.example or localhost:5000")
	case len(args) > 1:
		return "", fmt.Errorf("unexpected argument %q", args[1])
	}
	return strings.TrimSuffix(strings.TrimPrefix(args[0], "https://"), "/"), nil
}

func cmdLogin(a *app.App, o *options, args []string) (int, error) {
	registry, err := oneRegistry(args)
	if err != nil {
		return 0, err
	}
	if o.passwordStdin && o.loginUser == "" {
		return 0, app.Hinted(errors.New("--password-stdin needs a user name"), "--username USER")
	}
	t := imageTool{a}
	return t.WithImages(func(ctx context.Context, c *images.Client) (int, error) {
		c.TLSVerify, c.AuthFile = o.tlsVerify, o.authFile
		user, password, err := t.credentials(ctx, &o.pushOptions)
		if err != nil {
			return 0, err
		}
		where, err := c.Login(ctx, registry, user, password, progress.New(&a.Console, false, "login").Take)
		if err != nil {
			return 0, err
		}
		return t.Print(fmt.Sprintf("logged in to %s as %s; stored in %s\n", registry, user, where))
	})
}

func cmdLogout(a *app.App, o *options, args []string) (int, error) {
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
	return a.WithImages(func(ctx context.Context, c *images.Client) (int, error) {
		c.AuthFile = o.authFile
		return 0, c.Logout(ctx, registry)
	})
}

// credentials returns the user name and the password, which it asks for where no flag says where they are.
func (t imageTool) credentials(ctx context.Context, p *pushOptions) (user, password string, err error) {
	if user = p.loginUser; user == "" {
		if user, err = t.Ask(ctx, "Username: ", true, "--username USER"); err != nil {
			return "", "", err
		}
	}
	if strings.Contains(user, ":") {
		return "", "", fmt.Errorf("user name %q: has a colon", user)
	}
	if p.passwordStdin {
		password, err = app.ReadSecret(t.Stdin, "password")
	} else {
		password, err = t.AskSecret(ctx, "Password: ", "--password-stdin reads it from a pipe")
	}
	return user, password, err
}

func secretFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read passphrase %q: %w", path, fsutil.Reason(err))
	}
	defer f.Close()
	return app.ReadSecret(f, "passphrase")
}
