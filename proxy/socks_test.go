package proxy

import (
	"bytes"
	"io"
	"net"
	"testing"
)

// socksConn requests a connection and returns it and the reply.
func (r *rig) socksConn(kind byte, host []byte, port uint16) (net.Conn, byte) {
	r.t.Helper()
	c := r.dial(r.addr)
	c.Write([]byte{5, 2, 2, 0})
	c.Write(append(append([]byte{5, 1, 0, kind}, host...), byte(port>>8), byte(port)))
	var b [12]byte
	if _, err := io.ReadFull(c, b[:]); err != nil || b[0] != 5 || b[1] != 0 || b[2] != 5 {
		r.t.Fatalf("%x %v", b, err)
	}
	return c, b[3]
}

func (r *rig) socks(kind byte, host []byte, port uint16) byte {
	_, code := r.socksConn(kind, host, port)
	return code
}

func TestSOCKS(t *testing.T) {
	echo(t, "8.0.0.2:7")
	r := newRig(t, Config{Policy: allow(t, "good.test:*", "8.0.0.2:7", "[2001:4860::1]:7")}, "good.test")
	v6 := net.ParseIP("2001:4860::1")
	for _, c := range []struct {
		kind byte
		host []byte
		port uint16
		want byte
	}{
		{3, append([]byte{9}, "good.test"...), 7, socksOK},
		{1, []byte{8, 0, 0, 2}, 7, socksOK},
		{3, append([]byte{7}, "8.0.0.2"...), 7, socksOK},
		{1, []byte{8, 0, 0, 2}, 8, socksForbidden},
		{4, v6, 7, socksUnreachable},
		{4, net.ParseIP("::1"), 7, socksForbidden},
		{3, append([]byte{8}, "bad.test"...), 7, socksForbidden},
		{3, append([]byte{9}, "good.test"...), 0, socksForbidden},
		{3, append([]byte{9}, "good.test"...), 9, socksUnreachable},
		{9, nil, 7, socksAddress},
	} {
		conn, code := r.socksConn(c.kind, c.host, c.port)
		if code != c.want {
			t.Errorf("%d %q:%d: %d, want %d", c.kind, c.host, c.port, code, c.want)
		}
		if code == socksOK {
			conn.Write([]byte("ping"))
			if _, err := io.ReadFull(conn, make([]byte, 4)); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestSOCKSRefused(t *testing.T) {
	r := newRig(t, Config{Policy: allow(t, "good.test")})
	for in, want := range map[string]string{
		"\x05\x01\x02": "\x05\xff", // requires a password
		"\x05\x00":     "\x05\xff",
		"\x05\x01\x00\x05\x02\x00\x01\x08\x00\x00\x02\x00\x07": "\x05\x00\x05\x07\x00\x01\x00\x00\x00\x00\x00\x00", // BIND
		"\x05\x01\x00\x05\x03\x00\x01\x08\x00\x00\x02\x00\x07": "\x05\x00\x05\x07\x00\x01\x00\x00\x00\x00\x00\x00", // UDP
		"\x05\x01\x00\x04": "\x05\x00",
		"\x04\x01\x00\x07\x08\x00\x00\x02\x00\r\n\r\n": "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request", // SOCKS4
	} {
		c := r.dial(r.addr)
		io.WriteString(c, in)
		c.(*net.TCPConn).CloseWrite()
		if got, _ := io.ReadAll(c); string(got) != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// FuzzSOCKS checks that every parsed request has a host and a port.
func FuzzSOCKS(f *testing.F) {
	f.Add([]byte("\x05\x01\x00\x05\x01\x00\x03\x09good.test\x01\xbb"))
	f.Add([]byte("\x05\x02\x00\x02\x05\x01\x00\x01\x08\x00\x00\x02\x00\x07"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(b), io.Discard}
		r, err := readSOCKS(c)
		if err == nil && len(r.host) > 255 {
			t.Fatalf("%q: %+v", b, r)
		}
	})
}
