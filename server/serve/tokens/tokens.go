// Package tokens is demesne serve token: the tokens of namespaces.
package tokens

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/server"
	"demesne/server/serve/settings"
	"demesne/server/servecmd"
)

// Run performs demesne serve token. args are the words after "token".
func Run(o *servecmd.Options, args []string, out io.Writer) error {
	verbs := []string{"add", "list", "rm"}
	if len(args) == 0 {
		return text.Hinted(errors.New("token: needs a verb"), "demesne serve token add NAMESPACE | list | rm NAME…")
	}
	if err := cmdline.OneOf(args[0], verbs); err != nil {
		return fmt.Errorf("token %q: %w", args[0], err)
	}
	dir, err := settings.StateDir()
	if err != nil {
		return err
	}
	all, rest := server.OpenTokens(dir), args[1:]
	switch {
	case args[0] == "add" && len(rest) == 1:
		token, err := all.Add(rest[0], o.Name, o.Expires)
		if err == nil {
			_, err = fmt.Fprintln(out, token)
		}
		return err
	case args[0] == "add":
		return text.Hinted(errors.New("token add: needs one namespace"), "demesne serve token add team-a")
	case args[0] == "list" && len(rest) == 0:
		return listTokens(all, out)
	case args[0] == "list":
		return fmt.Errorf("unexpected argument %q", rest[0])
	case len(rest) == 0:
		return text.Hinted(errors.New("token rm: needs a name"), "demesne serve token list shows the names")
	}
	for _, name := range rest {
		if e := all.Remove(name); e != nil {
			err = errors.Join(err, fmt.Errorf("remove token %q: %w", name, e))
		}
	}
	return err
}

func listTokens(all *server.Tokens, out io.Writer) error {
	list, err := all.List()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tNAMESPACE\tADDED\tEXPIRES")
	for _, t := range list {
		expires := "never"
		if !t.Expires.IsZero() {
			expires = t.Expires.Local().Format(time.DateTime)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", t.Name, t.Namespace, t.Added.Local().Format(time.DateTime), expires)
	}
	return w.Flush()
}
