// Package sshagent speaks the protocol of ssh agents (draft-ietf-sshm-ssh-agent) with a client that is not trusted: it
// bounds each message, and passes only lists of keys, and signatures that the user allows.
package sshagent

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
)

// most bounds a message.
const most = 256 << 10

// The messages that pass.
const (
	failure       = 5
	listKeys      = 11
	listAnswer    = 12
	sign          = 13
	signAnswer    = 14
	loginRequest  = 50 // SSH_MSG_USERAUTH_REQUEST
	fileSignature = "SSHSIG"
)

// Failure returns SSH_AGENT_FAILURE.
func Failure() []byte { return []byte{0, 0, 0, 1, failure} }

// Read reads one message with its length.
func Read(r io.Reader) ([]byte, error) {
	b := make([]byte, 4)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(b)
	if n == 0 || n > most {
		return nil, fmt.Errorf("read message of agent: %d bytes", n)
	}
	b = append(b, make([]byte, n)...)
	_, err := io.ReadFull(r, b[4:])
	return b, err
}

// Signature is a signature that a client asks for. Its texts are the client's.
type Signature struct {
	Key  string // the fingerprint of the key, as ssh-keygen -l prints it
	What string // what is signed: a login, a file, or something else
}

// Serve answers the requests of one client until it ends. Lists of keys, and signatures that allow accepts, are requested by
// ask; all other requests fail, such as to add, remove or lock keys, and extensions.
func Serve(client io.ReadWriter, allow func(Signature) bool, ask func(request []byte) ([]byte, error)) {
	for {
		request, err := Read(client)
		if err != nil {
			return
		}
		answer := Failure()
		if want := expected(request, allow); want != 0 {
			if got, err := ask(request); err == nil && got[4] == want {
				answer = got
			}
		}
		if _, err := client.Write(answer); err != nil {
			return
		}
	}
}

// expected returns the kind of the answer to a request that passes, or 0.
func expected(request []byte, allow func(Signature) bool) byte {
	switch {
	case len(request) == 5 && request[4] == listKeys:
		return listAnswer
	case request[4] == sign:
		if s, ok := signature(request[5:]); ok && allow(s) {
			return signAnswer
		}
	}
	return 0
}

// signature parses SSH_AGENTC_SIGN_REQUEST.
func signature(b []byte) (s Signature, ok bool) {
	key, b, ok := field(b)
	if !ok || len(key) == 0 {
		return s, false
	}
	data, b, ok := field(b)
	if !ok || len(b) != 4 {
		return s, false
	}
	sum := sha256.Sum256(key)
	return Signature{Key: "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:]), What: purpose(data)}, true
}

// purpose says what data is. The server of a login is not in it: only a hash of the session is.
func purpose(data []byte) string {
	if rest, ok := bytes.CutPrefix(data, []byte(fileSignature)); ok {
		if name, _, ok := field(rest); ok {
			return fmt.Sprintf("a file or commit, for %q", cut(name))
		}
	}
	if _, rest, ok := field(data); ok && len(rest) > 0 && rest[0] == loginRequest {
		if user, _, ok := field(rest[1:]); ok {
			return fmt.Sprintf("a login by ssh as %q", cut(user))
		}
	}
	return "data of an unknown kind"
}

// cut bounds a name that the client chose.
func cut(name []byte) []byte { return name[:min(len(name), 64)] }

// field cuts a string of the protocol off b.
func field(b []byte) (value, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := binary.BigEndian.Uint32(b)
	if uint64(n) > uint64(len(b)-4) {
		return nil, nil, false
	}
	return b[4 : 4+n], b[4+n:], true
}
