package vault

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"filippo.io/age"
	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// Source says where the key is. The zero value is the file beside the secrets, which is made when it is missing.
type Source struct {
	File    string
	Command string // for /bin/sh; it prints the key
}

// ParseSource reads file:PATH or cmd:TEXT. An empty text is the zero Source.
func ParseSource(s string) (Source, error) {
	kind, what, _ := strings.Cut(s, ":")
	switch {
	case s == "":
		return Source{}, nil
	case kind == "file" && filepath.IsAbs(what):
		return Source{File: what}, nil
	case kind == "cmd" && what != "":
		return Source{Command: what}, nil
	}
	return Source{}, errors.New("not file:PATH, with an absolute path, or cmd:TEXT")
}

// maxKey bounds the text of a key, in bytes.
const maxKey = 4 << 10

// identity returns the key. path is the default file; if create is set, a missing one is made.
func (k Source) identity(path string, create bool) (*age.X25519Identity, error) {
	var text []byte
	var err error
	switch {
	case k.Command != "":
		sh := exec.Command("/bin/sh", "-c", k.Command)
		sh.Stdin, sh.Stderr = os.Stdin, os.Stderr
		text, err = sh.Output()
	case k.File != "":
		text, err = readPrivate(k.File, maxKey)
	default:
		text, err = readPrivate(path, maxKey)
		if create && errors.Is(err, fs.ErrNotExist) {
			return newKey(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read key of secrets: %w", err)
	}
	return parseKey(text)
}

func newKey(path string) (*age.X25519Identity, error) {
	key, err := age.GenerateX25519Identity()
	if err == nil {
		err = fsutil.WriteFile(path, []byte(key.String()+"\n"), 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("make key of secrets: %w", err)
	}
	return key, nil
}

// parseKey reads a file as age-keygen writes it: comments, and one identity.
func parseKey(text []byte) (*age.X25519Identity, error) {
	var found *age.X25519Identity
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		key, err := age.ParseX25519Identity(line)
		if err != nil || found != nil { // the error's own text may quote the key
			return nil, errors.New("key of secrets: not one identity of age (AGE-SECRET-KEY-1…)")
		}
		found = key
	}
	if found == nil {
		return nil, errors.New("key of secrets: is empty")
	}
	return found, nil
}

// readPrivate reads a regular file that is this user's alone, of at most most bytes.
func readPrivate(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, fmt.Errorf("%s: not a file", path)
	case int(st.Uid) != os.Geteuid():
		return nil, fmt.Errorf("%s: belongs to another user", path)
	case st.Mode&0o077 != 0:
		return nil, fmt.Errorf("%s: other users may read it: chmod 600", path)
	case st.Size > most:
		return nil, fmt.Errorf("%s: more than %d bytes", path, most)
	}
	return io.ReadAll(io.LimitReader(f, most))
}
