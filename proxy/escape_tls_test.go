package proxy

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// TestEscapeN7SNI checks that TLS must be for the name that was allowed. The proxy does not see requests inside
// TLS, so it does not prevent fronting by Host; see TestEscapeN8Fronting.
func TestEscapeN7SNI(t *testing.T) {
	ca := newAuthority(t)
	ca.serveHTTPS(t, "8.0.0.2:443", hello200, "allowed.test", "evil.test")
	r := newRig(t, Config{Policy: allow(t, "allowed.test", "other.test")}, "allowed.test")
	r.world.at["other.test."] = r.world.at["allowed.test."]
	for _, open := range r.ways("allowed.test", 443) {
		for sni, want := range map[string]string{
			"evil.test":  `TLS names server "evil.test", not "allowed.test"`,
			"other.test": `TLS names server "other.test", not "allowed.test"`, // allowed by itself
			"":           "port 443 needs TLS with a server name: parse name \"\": not a host name: empty",
		} {
			c := tls.Client(open(), &tls.Config{RootCAs: ca.pool, ServerName: sni, InsecureSkipVerify: true})
			err := c.Handshake()
			if err == nil || !strings.Contains(err.Error(), "unrecognized name") {
				t.Errorf("%q: %v", sni, err)
			}
			r.blocked(want)
		}
		c := tls.Client(open(), &tls.Config{RootCAs: ca.pool, ServerName: "ALLOWED.test"})
		if err := c.Handshake(); err != nil {
			t.Error(err)
		}
	}
}

// ways returns functions that connect to one target through each entry point of the proxy.
func (r *rig) ways(name string, port uint16) map[string]func() net.Conn {
	at := netip.AddrPortFrom(r.address(name), port).String()
	r.serve(at, r.proxy.ServeNamed)
	return map[string]func() net.Conn{
		"name":    func() net.Conn { return r.dial(at) },
		"connect": func() net.Conn { c, _, _ := r.connect(fmt.Sprintf("%s:%d", name, port)); return c },
		"socks":   func() net.Conn { c, _ := r.socksConn(3, append([]byte{byte(len(name))}, name...), port); return c },
	}
}

// TestEscapeN8Fronting documents that another Host inside the TLS of an allowed name reaches the allowed server,
// which may serve that Host. Without interception the proxy does not prevent it, as the package comment states.
func TestEscapeN8Fronting(t *testing.T) {
	ca := newAuthority(t)
	ca.serveHTTPS(t, "8.0.0.2:443", hello200, "allowed.test")
	r := newRig(t, Config{Policy: allow(t, "allowed.test")}, "allowed.test")
	req, _ := http.NewRequest("GET", "https://allowed.test/", nil)
	req.Host = "evil.test"
	resp, err := r.client(ca).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); string(b) != "hello from evil.test" {
		t.Errorf("%q", b)
	}
}

// clientHello returns the ClientHello that crypto/tls sends.
func clientHello(t testing.TB, c *tls.Config) []byte {
	t.Helper()
	a, b := net.Pipe()
	go tls.Client(a, c).Handshake()
	defer a.Close()
	defer b.Close()
	buf := make([]byte, 64<<10)
	n, err := b.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return buf[:n]
}

// records splits the single record of a ClientHello into records with n bytes each.
func records(hello []byte, n int) (out []byte) {
	for body := hello[5:]; len(body) > 0; {
		m := min(n, len(body))
		out = append(out, hello[0], hello[1], hello[2])
		out = binary.BigEndian.AppendUint16(out, uint16(m))
		out = append(out, body[:m]...)
		body = body[m:]
	}
	return out
}

// TestEscapeN9Fragments checks that a ClientHello in many records and packets is reassembled, and rejected where
// that fails.
func TestEscapeN9Fragments(t *testing.T) {
	whole := clientHello(t, &tls.Config{ServerName: "allowed.test"})
	for _, n := range []int{1, 7, 100} {
		cut := records(whole, n)
		h, read, err := readHello(iotestOneByte{bytes.NewReader(cut)}, nil)
		if err != nil || h.name.String() != "allowed.test" || h.encrypted || !bytes.Equal(read, cut) {
			t.Errorf("records of %d: %+v %v", n, h, err)
		}
		if h, read, err := readHello(bytes.NewReader(cut[9:]), cut[:9]); err != nil || h.name.String() != "allowed.test" || !bytes.Equal(read, cut) {
			t.Errorf("with a head: %+v %v", h, err)
		}
	}
	huge := append([]byte{22, 3, 1, 0x40, 0, 1, 0x0f, 0xff, 0xff}, make([]byte, 16384-4)...)
	for name, b := range map[string][]byte{
		"cut":            whole[:40],
		"another record": append([]byte{23, 3, 3, 0, 1, 0}, whole...),
		"too long":       append(huge, bytes.Repeat(append([]byte{22, 3, 3, 0x40, 0}, make([]byte, 16384)...), 10)...),
		"empty records":  bytes.Repeat([]byte{22, 3, 3, 0, 0}, 1000),
		"nothing":        nil,
		"SSLv2":          {0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0, 0, 0x10},
		"two names":      twoNames(whole),
	} {
		if h, _, err := readHello(bytes.NewReader(b), nil); err == nil || !h.name.IsZero() {
			t.Errorf("%s: %+v %v", name, h, err)
		}
	}
	slow := append([]byte{1, 0, 0xff, 0}, make([]byte, 0xff00)...) // as much as crypto/tls reads, one byte a record
	for name, head := range map[string][]byte{"from a connection": nil, "after a head": {22, 3, 1, 0, 1}} {
		_, read, err := readHello(bytes.NewReader(records(append([]byte{22, 3, 1, 0, 0}, slow...), 1)[len(head):]), head)
		if !errors.Is(err, errTooLong) || len(read) != maxHello {
			t.Errorf("%s: %d bytes read, %v", name, len(read), err)
		}
	}
}

// twoNames duplicates the server name extension.
func twoNames(hello []byte) []byte {
	i := bytes.Index(hello, []byte("allowed.test")) - 9
	ext := hello[i : i+9+len("allowed.test")]
	b := append(bytes.Clone(hello), ext...)
	grow := func(at, size int) {
		for n, j := len(ext), at+size-1; n > 0 && j >= at; j-- {
			n += int(b[j])
			b[j], n = byte(n), n>>8
		}
	}
	grow(3, 2) // the lengths of the record, the message, and the extensions
	grow(6, 3)
	sessions := 9 + 2 + 32
	suites := sessions + 1 + int(b[sessions])
	compression := suites + 2 + int(binary.BigEndian.Uint16(b[suites:]))
	grow(compression+1+int(b[compression]), 2)
	return b
}

type iotestOneByte struct{ r io.Reader }

func (o iotestOneByte) Read(b []byte) (int, error) { return o.r.Read(b[:min(1, len(b))]) }

// TestEscapeN10NoTLS checks that port 443 requires TLS, unless a tcp:// rule allows otherwise.
func TestEscapeN10NoTLS(t *testing.T) {
	echo(t, "8.0.0.2:443")
	r := newRig(t, Config{Policy: allow(t, "allowed.test", "tcp://raw.test")}, "allowed.test")
	r.world.at["raw.test."] = r.world.at["allowed.test."]
	for _, open := range r.ways("allowed.test", 443) {
		c := open()
		fmt.Fprint(c, "SSH-2.0-OpenSSH_9.2\r\n")
		if got, _ := io.ReadAll(c); !bytes.Equal(got, unrecognizedName) {
			t.Errorf("%q", got)
		}
	}
	for _, open := range r.ways("raw.test", 443) {
		c := open()
		fmt.Fprint(c, "SSH-2.0-OpenSSH_9.2\r\n")
		if _, err := io.ReadFull(c, make([]byte, 21)); err != nil {
			t.Error(err)
		}
	}
}
