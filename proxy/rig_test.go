package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"demesne/proxy/policy"
)

// TestMain runs the tests in their own network namespace, where ports below 1024 are free. It assigns 8.0.0.0/8
// and 198.19.0.0/16 to loopback, so that test servers have public addresses.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv("DEMESNE_TEST_INSIDE") == "" {
		os.Exit(again())
	}
	for name, a := range map[string]string{"lo": "127.0.0.1/8", "lo:8": "8.0.0.1/8", "lo:9": "198.19.255.254/16"} {
		if err := address(name, netip.MustParsePrefix(a)); err != nil {
			fmt.Fprintf(os.Stderr, "give %s the address %s: %v\n", name, a, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func again() int {
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Env = append(os.Environ(), "DEMESNE_TEST_INSIDE=1")
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	err := c.Run()
	if c.ProcessState != nil {
		return c.ProcessState.ExitCode()
	}
	fmt.Fprintf(os.Stderr, "needs user namespaces: %v\n", err)
	return map[bool]int{true: 1}[os.Getenv("CI") != ""]
}

func address(name string, p netip.Prefix) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, o := range []struct {
		request uint
		set     func(*unix.Ifreq) error
	}{
		{unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(p.Addr().AsSlice()) }},
		{unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr(net.CIDRMask(p.Bits(), 32)) }},
		{unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil }},
	} {
		r, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		if err := o.set(r); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, o.request, r); err != nil {
			return err
		}
	}
	return nil
}

// rig is a running proxy and the resolver of its test world.
type rig struct {
	t     testing.TB
	proxy *Proxy
	addr  string // address of ServeProxy
	world *world
	log   *lockedBuffer
}

// world is a resolver with a fixed table of names. It records the names it is asked for.
type world struct {
	mu    sync.Mutex
	at    map[string][]netip.Addr
	asked []string
}

func (w *world) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, host)
	if a := w.at[host]; a != nil {
		return a, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

func (w *world) names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// newRig starts a proxy. Names resolve to 8.0.0.2 and up, in the order given.
func newRig(t testing.TB, c Config, names ...string) *rig {
	t.Helper()
	r := &rig{t: t, world: &world{at: map[string][]netip.Addr{}}, log: &lockedBuffer{}}
	a := netip.MustParseAddr("8.0.0.2")
	for _, n := range names {
		r.world.at[n+"."] = []netip.Addr{a}
		a = a.Next()
	}
	c.V4, c.V6 = netip.MustParsePrefix("198.19.0.0/16"), netip.MustParsePrefix("fd64:6d65:736e:1::/112")
	c.Resolver = r.world
	if c.Log == nil {
		c.Log = r.log
	}
	if c.Own == nil {
		c.Own = func(netip.AddrPort) (bool, error) { return false, nil } // 8.0.0.0/8 stands for the Internet here
	}
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	r.proxy = p
	r.addr = r.serve("127.0.0.1:0", p.ServeProxy)
	return r
}

func allow(t testing.TB, words ...string) policy.Policy {
	t.Helper()
	p := policy.Policy{}
	for _, w := range words {
		r, err := policy.ParseRule(w)
		if err != nil {
			t.Fatal(err)
		}
		p = p.Allow(r)
	}
	return p
}

func (r *rig) serve(at string, f func(net.Listener) error) string {
	r.t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		r.t.Fatal(err)
	}
	go f(l)
	return l.Addr().String()
}

// named connects to a name's fake address, as a program without proxy settings does.
func (r *rig) named(name string, port uint16) net.Conn {
	r.t.Helper()
	at := netip.AddrPortFrom(r.address(name), port).String()
	r.serve(at, r.proxy.ServeNamed)
	return r.dial(at)
}

// address returns the address that DNS gives for a name.
func (r *rig) address(name string) netip.Addr {
	r.t.Helper()
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), dns.TypeA)
	a := (&resolver{p: r.proxy}).answer(m)
	if len(a.Answer) != 1 {
		r.t.Fatalf("%s: %v", name, a)
	}
	at, _ := netip.AddrFromSlice(a.Answer[0].(*dns.A).A.To4())
	return at
}

func (r *rig) dial(at string) net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// connect requests a tunnel and returns the connection and the response.
func (r *rig) connect(target string) (net.Conn, *http.Response, string) {
	r.t.Helper()
	c := r.dial(r.addr)
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	resp, err := http.ReadResponse(bufio.NewReaderSize(&slow{c, 1 << 20}, 16), &http.Request{Method: "CONNECT"})
	if err != nil {
		r.t.Fatalf("%q: %v", target, err)
	}
	body := ""
	if resp.StatusCode != 200 {
		b, _ := io.ReadAll(resp.Body)
		body = string(b)
	}
	return c, resp, body
}

// records waits for n records and returns them.
func (r *rig) records(n int) []Record {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		r.log.mu.Lock()
		d := json.NewDecoder(bytes.NewReader(r.log.b.Bytes()))
		r.log.mu.Unlock()
		var all []Record
		for {
			var rec Record
			if d.Decode(&rec) != nil {
				break
			}
			all = append(all, rec)
		}
		if len(all) >= n {
			return all
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%d records, not %d: %+v", len(all), n, all)
		}
	}
}

// blocked waits for a denial with this reason.
func (r *rig) blocked(reason string) {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		all := r.proxy.Blocked()
		if slices.ContainsFunc(all, func(b Blocked) bool { return b.Reason == reason }) {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("no denial %q in %+v", reason, all)
		}
	}
}

// authority is a CA.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{pool: x509.NewCertPool()}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	der := a.sign(t, &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}, nil, &a.key.PublicKey)
	a.cert, _ = x509.ParseCertificate(der)
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) sign(t testing.TB, c, parent *x509.Certificate, pub *ecdsa.PublicKey) []byte {
	t.Helper()
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, pub, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func (a *authority) server(t testing.TB, names ...string) *tls.Config {
	t.Helper()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	der := a.sign(t, &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), DNSNames: names}, a.cert, &key.PublicKey)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// serveHTTPS runs a TLS server at an address until the test ends.
func (a *authority) serveHTTPS(t testing.TB, at string, h http.HandlerFunc, names ...string) {
	t.Helper()
	l, err := tls.Listen("tcp", at, a.server(t, names...))
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, h)
}

func serveHTTP(t testing.TB, at string, h http.HandlerFunc) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, h)
}

func serve(t testing.TB, l net.Listener, h http.HandlerFunc) {
	s := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
}

// echo runs a TCP server that sends back its input.
func echo(t testing.TB, at string) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
}
