package sshserver

import (
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"

	"demesne/internal/fsutil"
	"demesne/server/sshcmd"
)

// keyMost bounds the file of the host key.
const keyMost = 16 << 10

// hostKey returns the user's host key, which the first connection makes, and which every sandbox shares: a client cannot
// mistake one end of a pipe for another. A file beside it has the line that the client compares, so that OpenSSH neither
// asks nor warns, and ~/.ssh/known_hosts stays as it is.
func hostKey() (ssh.Signer, error) {
	dir, err := fsutil.StateDir(sshcmd.StateName)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "host_key")
	b, err := fsutil.ReadPrivate(path, keyMost)
	if errors.Is(err, fs.ErrNotExist) {
		if b, err = makeKey(dir, path); err != nil {
			return nil, fmt.Errorf("make host key: %w", err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read host key: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(b)
	if err != nil {
		return nil, fmt.Errorf("read host key %q: %w", path, err)
	}
	line := "* " + string(ssh.MarshalAuthorizedKey(signer.PublicKey()))
	known := filepath.Join(dir, sshcmd.KnownHosts)
	if have, err := os.ReadFile(known); err == nil && string(have) == line {
		return signer, nil
	}
	return signer, fsutil.WriteFile(known, []byte(line), 0o600)
}

// makeKey makes the key, or reads the one that another process made meanwhile.
func makeKey(dir, path string) ([]byte, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		return nil, err
	}
	b := pem.EncodeToMemory(block)
	if err := fsutil.CreateFile(path, b, 0o600); !errors.Is(err, fs.ErrExist) {
		return b, err
	}
	return fsutil.ReadPrivate(path, keyMost)
}
