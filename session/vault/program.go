package vault

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"demesne/internal/procself"
	"demesne/internal/text"
)

// exitNone is the exit code for a secret that does not exist.
const exitNone = 3

// Main is the frontend vault of demesne-frontend. demesne secret executes it, and demesne run for a secret of the vault,
// because demesne does not link the encryption.
//
// Its argument is the operation: add, list, remove or get. It reads one [Secret] as JSON from stdin, of which the operation
// says which fields count. It prints a list of secrets, as JSON. On an error it prints a line to stderr and exits 1; if
// there is no such secret, it exits 3.
func Main() {
	unix.Umask(0o077)
	procself.OwnHome()
	err := execute(os.Args[1:], os.Stdin, os.Stdout)
	switch {
	case errors.Is(err, ErrNone):
		os.Exit(exitNone)
	case err != nil:
		fmt.Fprintln(os.Stderr, text.SafeLine(err.Error()))
		os.Exit(1)
	}
}

// execute performs one operation.
func execute(args []string, in io.Reader, out io.Writer) error {
	var s Secret
	if err := json.NewDecoder(io.LimitReader(in, 2*MaxValue)).Decode(&s); err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	if len(args) != 1 {
		return errors.New("needs one operation")
	}
	v, err := Default(os.Getenv("DEMESNE_VAULT_KEY"))
	if err != nil {
		return err
	}
	var found []Secret
	switch args[0] {
	case "add":
		replaced, err := v.Add(s)
		if err != nil {
			return err
		}
		if replaced {
			found = append(found, Secret{Namespace: s.Namespace, Name: s.Name})
		}
	case "list":
		found, err = v.List(s.Namespace)
	case "remove":
		err = v.Remove(s.Namespace, s.Name)
	case "get":
		s, err = v.Get(s.Namespace, s.Name)
		found = append(found, s)
	default:
		err = fmt.Errorf("operation %q: not add, list, remove or get", args[0])
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(found)
}
