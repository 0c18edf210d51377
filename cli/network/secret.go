package network

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/cli/stream"
	"demesne/internal/cmdline"
	"demesne/internal/text"
)

// Secret returns demesne secret.
func Secret() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "secret", Usage: []string{"add [--namespace NS] [--host HOST[:PORT]] [--header HEADER] [--from SOURCE] NAME", "list [--namespace NS] [--json]", "rm [--namespace NS] NAME…"},
			Summary: "store credentials for sandboxes",
			About: `add asks for a value and stores it under a name, encrypted. On a terminal the value is not shown; otherwise it is read
from stdin, or from where --from says. With --host the value goes only to this host, and demesne run needs no
--secret-for. list shows names, hosts and times, and never values. rm removes secrets.

demesne run --secret NAME=vault: uses a stored secret: the sandbox sees a placeholder, and the proxy sends the value. A
namespace keeps the secrets of one project or caller apart from others: --secret NAME=vault:NAMESPACE/NAME.

age encrypts the secrets. The key is in a file beside the secrets that only you can read, unless
$DEMESNE_VAULT_KEY names another place: file:PATH, or cmd:TEXT, a command that prints the key, such as one that asks a
keyring.`,
			Examples: []cmdline.Example{
				{Says: "store a token for one host", Line: "demesne secret add --host api.example.com --header Authorization TOKEN"},
				{Says: "store the output of a command", Line: "demesne secret add --host api.example.com --from cmd:'pass show api' TOKEN"},
				{Says: "use it", Line: `demesne run --allow-domain api.example.com --secret TOKEN=vault: -- sh -c 'curl -H "Authorization: Bearer $TOKEN" https://api.example.com/'`},
				{Says: "make a key, and keep it in the keyring of the desktop", Line: "age-keygen | secret-tool store --label=demesne demesne vault; export DEMESNE_VAULT_KEY=cmd:'secret-tool lookup demesne vault'"},
			},
			Words: []string{"add", "list", "rm"},
		},
		New: func(a *app.App) app.Options { return &secretOptions{App: a} },
	}
}

func (o *secretOptions) setFrom(s string) error {
	if !launch.IsSource(s) || strings.HasPrefix(s, launch.FromVault) {
		return errors.New("not env:VARIABLE, file:PATH or cmd:TEXT")
	}
	o.from = s
	return nil
}

type secretOptions struct {
	*app.App
	namespace, from, host, header string
	json                          bool
}

func (o *secretOptions) Flags() cmdline.Flags {
	return slices.Concat(cmdline.Flags{
		{Group: cmdline.GroupGeneral, Long: "namespace", Arg: "NS", Set: cmdline.Text(&o.namespace), Help: "namespace of the secret (default " + app.VaultNamespace + "; of list: all)"},
		{Group: app.GroupNetwork, Long: "host", Arg: "HOST[:PORT]", Set: cmdline.Text(&o.host), Help: "with add: the only host that gets the value, over TLS"},
		{Group: app.GroupNetwork, Long: "header", Arg: "HEADER", Set: cmdline.Text(&o.header), Help: "with add: the only header that may have the value"},
		{Group: app.GroupNetwork, Long: "from", Arg: "SOURCE", Set: o.setFrom, Help: "with add: take the value from env:VARIABLE, file:PATH or cmd:TEXT"},
	}, app.JSONFlag(&o.json))
}

func (o *secretOptions) Run(args []string) (int, error) {
	if len(args) == 0 {
		return 0, text.Hinted(errors.New("needs a verb"), "demesne secret add NAME | list | rm NAME…")
	}
	if err := cmdline.OneOf(args[0], []string{"add", "list", "rm"}); err != nil {
		return 0, fmt.Errorf("%q: %w", args[0], err)
	}
	verb, names := args[0], args[1:]
	switch {
	case verb != "add" && (o.host != "" || o.header != "" || o.from != ""):
		return 0, fmt.Errorf("--host, --header and --from are for add, not for %s", verb)
	case verb == "list" && len(names) > 0:
		return 0, fmt.Errorf("unexpected argument %q", names[0])
	case verb != "list" && len(names) == 0:
		return 0, text.Hinted(errors.New("needs a name"), "demesne secret %s NAME", verb)
	case verb == "add" && len(names) > 1:
		return 0, fmt.Errorf("unexpected argument %q", names[1])
	case o.header != "" && o.host == "":
		return 0, errors.New("--header needs --host")
	}
	for _, name := range names {
		if !app.IsEnvName(name) {
			return 0, fmt.Errorf("secret %q: not the name of a variable", name)
		}
	}
	switch verb {
	case "add":
		return o.add(names[0])
	case "rm":
		for _, name := range names {
			if _, err := app.Vault("remove", app.StoredSecret{Namespace: cmp.Or(o.namespace, app.VaultNamespace), Name: name}); err != nil {
				return 0, fmt.Errorf("secret %q: %w", name, err)
			}
		}
		return 0, nil
	}
	all, err := app.Vault("list", app.StoredSecret{Namespace: o.namespace})
	if err != nil {
		return 0, fmt.Errorf("list secrets: %w", err)
	}
	if o.json {
		return o.PrintJSON(append([]app.StoredSecret{}, all...))
	}
	return o.Print(secretTable(all, time.Now()))
}

func (o *secretOptions) add(name string) (int, error) {
	s := app.StoredSecret{Namespace: cmp.Or(o.namespace, app.VaultNamespace), Name: name, Host: o.host, Header: o.header}
	var err error
	switch {
	case o.from != "":
		s.Value, err = launch.SecretValue(&o.Console, o.from)
	case stream.IsTerminal(o.Stdin):
		sig := stream.SignalsWatched(o.Quit)
		s.Value, err = o.AskSecret(sig.Ctx, name+": ", "")
		if gave := sig.GaveUp(); gave != 0 && err != nil {
			return gave, nil
		}
	default:
		s.Value, err = app.ReadSecret(o.Stdin, "value")
	}
	if err == nil {
		_, err = app.Vault("add", s)
	}
	if err != nil {
		return 0, fmt.Errorf("secret %q: %w", name, err)
	}
	return 0, nil
}

func secretTable(all []app.StoredSecret, now time.Time) string {
	rows := [][]string{{"NAMESPACE", "NAME", "HOST", "HEADER", "AGE"}}
	for _, s := range all {
		rows = append(rows, []string{s.Namespace, s.Name, cmp.Or(s.Host, "-"), cmp.Or(s.Header, "any"), app.Span(now.Sub(s.Added))})
	}
	return app.Columns(rows)
}
