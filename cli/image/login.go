package image

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
	"demesne/internal/text"
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
		New: func(a *app.App) app.Options { return &loginOptions{App: a} },
	}
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
		New: func(a *app.App) app.Options { return &logoutOptions{App: a} },
	}
}

// oneRegistry returns the only operand.
func oneRegistry(args []string) (string, error) {
	switch {
	case len(args) == 0 || args[0] == "":
		return "", text.Hinted(errors.New("needs a registry"), "demesne login REGISTRY, such as registry.example or localhost:5000")
	case len(args) > 1:
		return "", fmt.Errorf("unexpected argument %q", args[1])
	}
	return strings.TrimSuffix(strings.TrimPrefix(args[0], "https://"), "/"), nil
}

type loginOptions struct {
	*app.App
	access
	user          string
	passwordStdin bool
}

func (o *loginOptions) Flags() cmdline.Flags {
	return append(cmdline.Flags{
		{Group: cmdline.GroupGeneral, Long: "username", Short: 'u', Arg: "USER", Set: cmdline.Text(&o.user), Help: "user name (default: ask on the terminal)"},
		{Group: cmdline.GroupGeneral, Long: "password-stdin", Set: cmdline.On(&o.passwordStdin), Help: "read the password from stdin"},
	}, o.accessFlags()...)
}

func (o *loginOptions) Run(args []string) (int, error) {
	registry, err := oneRegistry(args)
	if err != nil {
		return 0, err
	}
	if o.passwordStdin && o.user == "" {
		return 0, text.Hinted(errors.New("--password-stdin needs a user name"), "--username USER")
	}
	return o.WithImages(func(ctx context.Context, c *images.Client) (int, error) {
		c.TLSVerify, c.AuthFile = o.tlsVerify, o.authFile
		user, password, err := o.credentials(ctx)
		if err != nil {
			return 0, err
		}
		where, err := c.Login(ctx, registry, user, password, progress.New(&o.Console, false, "login").Take)
		if err != nil {
			return 0, err
		}
		return o.Print(fmt.Sprintf("logged in to %s as %s; stored in %s\n", registry, user, where))
	})
}

type logoutOptions struct {
	*app.App
	access
	all bool
}

func (o *logoutOptions) Flags() cmdline.Flags {
	return slices.Concat(cmdline.Flags{{Group: cmdline.GroupGeneral, Long: "all", Short: 'a', Set: cmdline.On(&o.all), Help: "remove all stored passwords"}},
		o.authFileFlag())
}

func (o *logoutOptions) Run(args []string) (int, error) {
	registry := ""
	var err error
	switch {
	case o.all && len(args) > 0:
		return 0, fmt.Errorf("unexpected argument %q with --all", args[0])
	case !o.all:
		if registry, err = oneRegistry(args); err != nil {
			return 0, err
		}
	}
	return o.WithImages(func(ctx context.Context, c *images.Client) (int, error) {
		c.AuthFile = o.authFile
		return 0, c.Logout(ctx, registry)
	})
}

// credentials returns the user name and the password, which it asks for where no flag says where they are.
func (o *loginOptions) credentials(ctx context.Context) (user, password string, err error) {
	if user = o.user; user == "" {
		if user, err = o.Ask(ctx, "Username: ", true, "--username USER"); err != nil {
			return "", "", err
		}
	}
	if strings.Contains(user, ":") {
		return "", "", fmt.Errorf("user name %q: has a colon", user)
	}
	if o.passwordStdin {
		password, err = app.ReadSecret(o.Stdin, "password")
	} else {
		password, err = o.AskSecret(ctx, "Password: ", "--password-stdin reads it from a pipe")
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

// loginHabits are flags of docker login and podman login.
func loginHabits() map[string]string {
	const password = "other users could see it: use --password-stdin, or type it"
	return map[string]string{"-p": password, "--password": password, "--insecure": "use --tls-verify=false"}
}
