package executor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"demesne/internal/fsutil"
	"demesne/internal/text"
)

// maxKey bounds the file of a private key, and maxRequest a request to an agent, both in bytes.
const maxKey, maxRequest = 64 << 10, 256 << 10

// keysOf returns an agent that has the keys of files. It signs and lists, and nothing else: commands share it.
func keysOf(paths []string) (agent.Agent, error) {
	ring := agent.NewKeyring()
	for _, path := range paths {
		key, err := keyOf(path)
		if err == nil {
			err = ring.Add(agent.AddedKey{PrivateKey: key, Comment: filepath.Base(path)})
		}
		if err != nil {
			return nil, err
		}
	}
	return signing{ring.(agent.ExtendedAgent)}, nil // extended: it signs by SHA-2 with RSA keys
}

// keyOf reads a private key.
func keyOf(path string) (key any, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open %q: %w", path, fsutil.Reason(err))
	}
	defer f.Close()
	pem, err := io.ReadAll(io.LimitReader(f, maxKey))
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", path, fsutil.Reason(err))
	}
	key, err = ssh.ParseRawPrivateKey(pem)
	var locked *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &locked):
		return nil, text.Hinted(fmt.Errorf("%q: the key has a passphrase", path), "ssh-agent sh -c 'ssh-add KEY && demesne build --ssh default …'")
	case err != nil:
		return nil, fmt.Errorf("%q: no private key", path) // the error could have parts of the file
	}
	return key, nil
}

// signing is an agent whose keys cannot be changed or locked.
type signing struct{ agent.ExtendedAgent }

var errSigning = errors.New("this agent only signs")

func (signing) Add(agent.AddedKey) error   { return errSigning }
func (signing) Remove(ssh.PublicKey) error { return errSigning }
func (signing) RemoveAll() error           { return errSigning }
func (signing) Lock([]byte) error          { return errSigning }
func (signing) Unlock([]byte) error        { return errSigning }

// serveKeys answers the requests of a connection. What comes is a sandbox's: each request is bounded before it is read.
func serveKeys(keys agent.Agent, c net.Conn) {
	for {
		frame := make([]byte, 4)
		if _, err := io.ReadFull(c, frame); err != nil {
			return
		}
		n := binary.BigEndian.Uint32(frame)
		if n == 0 || n > maxRequest {
			return
		}
		frame = append(frame, make([]byte, n)...)
		if _, err := io.ReadFull(c, frame[4:]); err != nil {
			return
		}
		err := agent.ServeAgent(keys, struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(frame), c})
		if !errors.Is(err, io.EOF) { // all of the one request was read
			return
		}
	}
}
