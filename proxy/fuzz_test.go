package proxy

import (
	"bytes"
	"crypto/tls"
	"net"
	"testing"

	"demesne/proxy/policy"
)

// FuzzHello: what was read is given back whole, and a name is one.
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
			t.Fatalf("%q is no name", h.name)
		}
	})
}

// FuzzTarget: a CONNECT's target is a host and a port, which mean the same when they are
// written out, or an error.
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
