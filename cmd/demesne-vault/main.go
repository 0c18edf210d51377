// Keep the Go runtime from opening and watching the cgroup's CPU limit: this program is not CPU-bound.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command demesne-vault reads and changes the stored secrets. demesne secret executes it, and demesne run for a secret of
// the vault. It is a separate program because demesne does not link the encryption.
//
// Its argument is the operation: add, list, remove or get. It reads one [vault.Secret] as JSON from stdin, of which the
// operation says which fields count. It prints a list of secrets, as JSON. On an error it prints a line to stderr and
// exits 1; if there is no such secret, it exits 3.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"demesne/internal/procself"
	"demesne/internal/text"
	"demesne/session/vault"
)

// exitNone is the exit code for a secret that does not exist.
const exitNone = 3

func main() {
	unix.Umask(0o077)
	procself.OwnHome()
	err := run(os.Args[1:], os.Stdin, os.Stdout)
	switch {
	case errors.Is(err, vault.ErrNone):
		os.Exit(exitNone)
	case err != nil:
		fmt.Fprintln(os.Stderr, text.SafeLine(err.Error()))
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	var s vault.Secret
	if err := json.NewDecoder(io.LimitReader(in, 2*vault.MaxValue)).Decode(&s); err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	if len(args) != 1 {
		return errors.New("needs one operation")
	}
	v, err := vault.Default(os.Getenv("DEMESNE_VAULT_KEY"))
	if err != nil {
		return err
	}
	var found []vault.Secret
	switch args[0] {
	case "add":
		replaced, err := v.Add(s)
		if err != nil {
			return err
		}
		if replaced {
			found = append(found, vault.Secret{Namespace: s.Namespace, Name: s.Name})
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
