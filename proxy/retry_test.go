package proxy

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// opensslServer runs `openssl s_server` at an address until the test ends. It uses evil.test's certificate for that name and
// allowed.test's otherwise. It supports only the group P-384, for which no client sends a key share at first.
func opensslServer(t *testing.T, at string) {
	t.Helper()
	dir := t.TempDir()
	var args []string
	for i, name := range []string{"allowed.test", "evil.test"} {
		key, cert := filepath.Join(dir, name+".key"), filepath.Join(dir, name+".pem")
		out, err := exec.Command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
			"-subj", "/CN="+name, "-keyout", key, "-out", cert).CombinedOutput()
		if err != nil {
			t.Fatalf("make a certificate: %v\n%s", err, out)
		}
		args = append(args, []string{"-cert", "-cert2"}[i], cert, []string{"-key", "-key2"}[i], key)
	}
	c := exec.Command("openssl", append([]string{"s_server", "-accept", at, "-groups", "P-384", "-servername", "evil.test", "-www", "-quiet"}, args...)...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if conn, err := net.Dial("tcp", at); err == nil {
			conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("openssl s_server does not listen")
		}
	}
}

// opensslClient connects with libssl, for the name first and, after a HelloRetryRequest, for second. It returns
// the client's output.
func opensslClient(t *testing.T, at, first, second string) string {
	t.Helper()
	host, port, _ := net.SplitHostPort(at)
	out, err := exec.Command("python3", "testdata/retry.py", host, port, first, second).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestEscapeN31Retry checks that a server which sends a HelloRetryRequest gets a second ClientHello for the same
// name only. The first case shows that OpenSSL serves the second name.
func TestEscapeN31Retry(t *testing.T) {
	opensslServer(t, "8.0.0.2:443")
	if got := opensslClient(t, "8.0.0.2:443", "allowed.test", "evil.test"); got != "1 retry: /CN=evil.test" {
		t.Fatalf("without a proxy: %q", got)
	}
	r := newRig(t, Config{Policy: allow(t, "allowed.test")}, "allowed.test")
	at := fmt.Sprintf("%v:443", r.address("allowed.test"))
	r.serve(at, r.proxy.ServeNamed)
	for second, want := range map[string]string{"allowed.test": "1 retry: /CN=allowed.test", "evil.test": "1 retry: no TLS"} {
		if got := opensslClient(t, at, "allowed.test", second); got != want {
			t.Errorf("then %s: %q, want %q", second, got, want)
		}
	}
	r.blocked(`TLS names server "evil.test", not "allowed.test"`)
}

// retryRecord returns a HelloRetryRequest with the parts that the proxy reads.
func retryRecord() []byte {
	body := append([]byte{3, 3}, retryRandom...)
	body = append(body, make([]byte, 40)...)
	message := append([]byte{messageServer, 0, 0, byte(len(body))}, body...)
	return append([]byte{recordHandshake, 3, 3, 0, byte(len(message))}, message...)
}

// oneRecord puts the messages of two ClientHellos into one record.
func oneRecord(a, b []byte) []byte {
	all := append(bytes.Clone(a), b[recordHeader:]...)
	binary.BigEndian.PutUint16(all[3:], uint16(len(all)-recordHeader))
	return all
}

// TestEscapeN31Order checks a second ClientHello in any form and order. One for another name reaches the server
// only after the server accepted the first, when it rejects any further one.
func TestEscapeN31Order(t *testing.T) {
	good, evil := clientHello(t, &tls.Config{ServerName: "allowed.test"}), clientHello(t, &tls.Config{ServerName: "evil.test"})
	ccs, early := []byte{recordChangeCipherSpec, 3, 3, 0, 1, 1}, []byte{recordData, 3, 3, 0, 3, 7, 7, 7}
	alert := []byte{recordAlert, 3, 3, 0, 2, 1, 112}
	again, hello := retryRecord(), append(bytes.Clone(retryRecord()), 0)
	hello[20] ^= 1 // changes the random: a ServerHello
	const other = `TLS names server "evil.test", not "allowed.test"`
	join := func(b ...[]byte) []byte { return bytes.Join(b, nil) }
	for name, c := range map[string]struct {
		first  []byte // from the client,
		answer []byte // from the server to a ClientHello,
		then   []byte // from the client after that
		want   []byte // everything that the server receives
		reason string
	}{
		"same name":                   {good, again, join(ccs, good), join(good, ccs, good), ""},
		"another name":                {good, again, evil, good, other},
		"behind a CCS":                {good, again, join(ccs, evil), join(good, ccs), other},
		"behind early data":           {join(good, early, ccs), again, evil, join(good, early, ccs), other},
		"before it is asked for":      {join(good, ccs, evil), again, nil, join(good, ccs), other},
		"in the same record":          {oneRecord(good, evil), again, nil, nil, "TLS with a second message in the record of the ClientHello"},
		"in the same record, later":   {good, again, oneRecord(good, evil), good, "TLS with a second message in the record of the ClientHello"},
		"asked for twice":             {good, join(again, ccs, again), join(good, evil), join(good, good), other},
		"behind an alert":             {good, join(alert, ccs, again), evil, good, other},
		"in records of 7 bytes":       {good, join(records(again, 7)), records(evil, 7), good, other},
		"something else":              {good, again, []byte{99, 3, 3, 0, 0}, good, "TLS without the second ClientHello that the server requested"},
		"the end":                     {good, again, nil, good, ""},
		"an alert, and the end":       {good, again, alert, join(good, alert), ""},
		"not asked for":               {join(good, early), hello, evil, join(good, early, evil), ""}, // a server rejects it
		"an answer that is not TLS":   {good, []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), evil, join(good, evil), ""},
		"only the end, and no answer": {good, nil, evil, nil, ""},
	} {
		for _, size := range []int{1, 1 << 20} {
			t.Run(fmt.Sprintf("%s, answered in pieces of %d", name, size), func(t *testing.T) {
				l, err := net.Listen("tcp", "8.0.0.2:443")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				r := newRig(t, Config{Policy: allow(t, "allowed.test")}, "allowed.test")
				conn := r.named("allowed.test", 443)
				conn.Write(c.first)
				got := make(chan []byte, 1)
				go func() {
					up, err := l.Accept()
					if err != nil {
						got <- nil
						return
					}
					defer up.Close()
					up.SetDeadline(time.Now().Add(time.Minute))
					head := make([]byte, len(good))
					n, _ := io.ReadFull(up, head)
					for rest := c.answer; n == len(good) && len(rest) > 0; rest = rest[min(size, len(rest)):] {
						up.Write(rest[:min(size, len(rest))])
					}
					if c.answer == nil {
						up.Close()
					}
					rest, _ := io.ReadAll(up)
					got <- append(head[:n], rest...)
				}()
				if c.reason == "" || c.then != nil {
					// The second request of the server reaches the client when the first is answered.
					io.ReadFull(conn, make([]byte, min(len(c.answer), max(len(again), len(c.answer)-len(again)-len(ccs)))))
				}
				conn.Write(c.then)
				conn.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, conn)
				if c.reason != "" {
					r.blocked(c.reason)
				}
				if b := <-got; c.want != nil && !bytes.Equal(b, c.want) {
					t.Errorf("the server got %d bytes, not %d:\n%.300x\n%.300x", len(b), len(c.want), b, c.want)
				}
				r.idle()
				if rec := r.records(2)[1]; c.reason == "" && rec.Verdict != "allowed" { // the first is for the DNS query
					t.Errorf("%+v", rec)
				}
			})
		}
	}
}

// TestRetryTwice checks that the client receives the whole of a second HelloRetryRequest before it answers the
// first.
func TestRetryTwice(t *testing.T) {
	l, err := net.Listen("tcp", "8.0.0.2:443")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := newRig(t, Config{Policy: allow(t, "allowed.test")}, "allowed.test")
	c := r.named("allowed.test", 443)
	c.SetDeadline(time.Now().Add(time.Minute))
	c.Write(clientHello(t, &tls.Config{ServerName: "allowed.test"}))
	up, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	again, cut := retryRecord(), recordHeader+serverHelloEnd
	for _, piece := range [][]byte{again, again[:cut], again[cut:]} {
		up.Write(piece)
		if _, err := io.ReadFull(c, make([]byte, len(piece))); err != nil {
			t.Fatal(err)
		}
	}
}

// TestServerScan checks that a stream which does not begin like a TLS server has no retry, and that the scan
// keeps little of it.
func TestServerScan(t *testing.T) {
	long := append([]byte{recordHandshake, 3, 3, 0x40, 0x00, messageServer, 0, 0x40, 0}, make([]byte, 0x4000)...)
	for name, c := range map[string]struct {
		in   []byte
		want verdict
	}{
		"nothing":            {nil, unknown},
		"half a header":      {[]byte{recordHandshake, 3}, unknown},
		"half a hello":       {retryRecord()[:30], unknown},
		"a retry":            {retryRecord(), helloAgain},
		"a ServerHello":      {long, noRetry},
		"data":               {[]byte{recordData}, noRetry},
		"SSH":                {[]byte("SSH-2.0"), noRetry},
		"another version":    {[]byte{recordHandshake, 2}, noRetry},
		"too long":           {[]byte{recordHandshake, 3, 3, 0x42, 0}, noRetry},
		"another message":    {[]byte{recordHandshake, 3, 3, 0, 1, 11}, noRetry},
		"empty records":      {bytes.Repeat([]byte{recordHandshake, 3, 3, 0, 0}, 99), unknown},
		"alerts":             {bytes.Repeat([]byte{recordAlert, 3, 3, 0, 2, 1, 112}, 99), unknown},
		"alerts and a retry": {append(bytes.Repeat([]byte{recordAlert, 3, 3, 0, 2, 1, 112}, 99), retryRecord()...), helloAgain},
	} {
		var s serverScan
		if v, _ := s.scan(c.in); v != c.want || len(s.header)+len(s.message) > recordHeader+serverHelloEnd {
			t.Errorf("%s: %v, want %v; %d bytes are kept", name, v, c.want, len(s.header)+len(s.message))
		}
	}
}
