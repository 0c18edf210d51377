package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"net"
	"net/http"
	"testing"

	"demesne/proxy/policy"
)

// FuzzHello checks that readHello returns all the bytes it read, and only valid names.
func FuzzHello(f *testing.F) {
	whole := clientHello(f, &tls.Config{ServerName: "good.test"})
	f.Add(whole, 0)
	f.Add(records(whole, 9), 3)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), 1)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		cut = max(0, min(cut, len(b)))
		h, read, err := readHello(bytes.NewReader(b[cut:]), b[:cut])
		if !bytes.HasPrefix(b, read) || len(read) < cut {
			t.Fatalf("%x was read of %x", read, b)
		}
		if (err == nil) == h.name.IsZero() {
			t.Fatalf("%+v %v", h, err)
		}
		if again, err := policy.ParseName(h.name.String()); err == nil && again != h.name {
			t.Fatalf("%q is not a name", h.name)
		}
	})
}

// FuzzTarget checks that a CONNECT's target parses to a host and a port that parse to the same when written out,
// or to an error.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{"good.test:443", "[::1]:1", "1.2.3.4:65535", "a\x00b:1", "good.test"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q, err := splitTarget(s)
		if err != nil {
			return
		}
		if q.Port == 0 || q.Name.IsZero() == !q.Addr.IsValid() {
			t.Fatalf("%q is %+v", s, q)
		}
		fl := &flow{q: q}
		if again, err := splitTarget(fl.target()); err != nil || again != q {
			t.Fatalf("%q is %+v, then %+v: %v", s, q, again, err)
		}
		if _, _, err := net.SplitHostPort(fl.target()); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzConnectHead checks that connectHead accepts exactly one complete head, which an HTTP server would parse in
// the same way.
func FuzzConnectHead(f *testing.F) {
	f.Add([]byte("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\nmore"))
	f.Add([]byte("CONNECT a.test:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, target := connectHead(b)
		if n == 0 {
			return
		}
		if n > len(b) || !bytes.HasSuffix(b[:n], []byte("\r\n\r\n")) || bytes.Count(b[:n], []byte("\r\n\r\n")) != 1 {
			t.Fatalf("%d bytes of %q", n, b)
		}
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(b)))
		if err != nil || r.Method != http.MethodConnect || r.RequestURI != target {
			t.Fatalf("%q is for %q: %+v, %v", b, target, r, err)
		}
	})
}
