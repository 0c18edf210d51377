package server

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"demesne/internal/fsutil"
)

// maxToken bounds a token file.
const maxToken = 4096

// Token returns the token in a file, and makes the file with a random one if it does not exist. The file must belong to
// this user and be closed to all others.
func Token(path string) (string, error) {
	b, err := fsutil.ReadPrivate(path, maxToken)
	if errors.Is(err, os.ErrNotExist) {
		return makeToken(path)
	}
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	if line = bytes.TrimSpace(line); len(line) < 16 {
		return "", fmt.Errorf("read token: the first line of %q has less than 16 characters", path)
	}
	return string(line), nil
}

// makeToken makes the file. A concurrent server may make it first, and then its token counts.
func makeToken(path string) (string, error) {
	token := newToken()
	err := fsutil.CreateFile(path, []byte(token+"\n"), 0o600)
	if errors.Is(err, os.ErrExist) {
		return Token(path)
	}
	if err != nil {
		return "", fmt.Errorf("make token: %w", err)
	}
	return token, nil
}

// newToken returns a random token in the form of E2B's API keys: several versions of the SDKs refuse all others.
func newToken() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return "e2b_" + hex.EncodeToString(b[:])
}

// Same compares two secrets in a time that does not depend on their contents. An empty want matches nothing.
func Same(got, want string) bool {
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && want != ""
}
