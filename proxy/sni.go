package proxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"demesne/proxy/policy"
)

// hello holds the fields of a ClientHello that name its server.
type hello struct {
	name      policy.Name
	encrypted bool // it has an encrypted_client_hello extension (ECH, or GREASE)
}

// unrecognizedName is a fatal TLS alert, unrecognized_name (112).
var unrecognizedName = []byte{21, 3, 3, 0, 2, 2, 112}

const extensionECH = 0xfe0d

// maxHello bounds the bytes read for a ClientHello. crypto/tls accepts a handshake message of 64 KiB, and its
// records may be short.
const maxHello = 96 << 10

var (
	errGotHello = errors.New("client hello")
	errTooLong  = errors.New("client hello is too long")
)

// readHello reads a ClientHello from head and then r. It returns all the bytes read, head included. crypto/tls
// parses it, as a server that stops there: it joins records and rejects malformed input.
func readHello(r io.Reader, head []byte) (hello, []byte, error) {
	w := &witness{from: io.MultiReader(bytes.NewReader(head), r)}
	var h hello
	var bad error
	err := tls.Server(w, &tls.Config{GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
		h.encrypted = slices.Contains(i.Extensions, extensionECH)
		h.name, bad = policy.ParseName(i.ServerName)
		return nil, errGotHello
	}}).Handshake()
	read := w.seen.Bytes()
	if n := len(head); len(read) < n {
		read = head
	}
	switch {
	case !errors.Is(err, errGotHello):
		return hello{}, read, err
	case bad != nil:
		return hello{}, read, bad
	}
	return h, read, nil
}

// witness is a connection that keeps the bytes read and discards writes.
type witness struct {
	from io.Reader
	seen bytes.Buffer
}

func (w *witness) Read(b []byte) (int, error) {
	left := maxHello - w.seen.Len()
	if left <= 0 {
		return 0, errTooLong
	}
	n, err := w.from.Read(b[:min(len(b), left)])
	w.seen.Write(b[:n])
	return n, err
}

func (w *witness) Write(b []byte) (int, error)      { return len(b), nil }
func (w *witness) Close() error                     { return nil }
func (w *witness) LocalAddr() net.Addr              { return nil }
func (w *witness) RemoteAddr() net.Addr             { return nil }
func (w *witness) SetDeadline(time.Time) error      { return nil }
func (w *witness) SetReadDeadline(time.Time) error  { return nil }
func (w *witness) SetWriteDeadline(time.Time) error { return nil }
