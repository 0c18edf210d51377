package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"demesne/internal/text"
	"demesne/runner/client"
)

// StoredSecret is a secret as the frontend vault reads and writes it, which links the encryption.
type StoredSecret struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name,omitempty"`
	Value     string    `json:"value,omitempty"`
	Host      string    `json:"host,omitempty"`
	Header    string    `json:"header,omitempty"`
	Added     time.Time `json:"added,omitzero"`
}

// VaultNamespace is the namespace of commands that name none.
const VaultNamespace = "default"

// VaultSecret returns the secret of [NAMESPACE/]NAME.
func VaultSecret(what string) (StoredSecret, error) {
	namespace, name, found := strings.Cut(what, "/")
	if !found {
		namespace, name = VaultNamespace, what
	}
	all, err := Vault("get", StoredSecret{Namespace: namespace, Name: name})
	if err != nil {
		return StoredSecret{}, err
	}
	if len(all) != 1 {
		return StoredSecret{}, errors.New("read vault: no answer")
	}
	return all[0], nil
}

// Vault runs one operation of that frontend. The value passes through a pipe, so it is in no argument and no variable.
func Vault(operation string, s StoredSecret) ([]StoredSecret, error) {
	argv, err := client.FindFrontend("vault")
	if err != nil {
		return nil, err
	}
	request, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(context.Background(), argv[0], argv[1], operation)
	cmd.Stdin, cmd.Stderr, cmd.Env = bytes.NewReader(request), &said, os.Environ()
	answer, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == 3:
		return nil, text.Hinted(fmt.Errorf("not in namespace %q", s.Namespace), "demesne secret list")
	case errors.As(err, &exit) && said.Len() > 0:
		return nil, errors.New(strings.TrimSpace(said.String()))
	case err != nil:
		return nil, fmt.Errorf("run %s: %w", argv[0], err)
	}
	var all []StoredSecret
	if err := json.Unmarshal(answer, &all); err != nil {
		return nil, errors.New("read vault: no answer")
	}
	return all, nil
}
