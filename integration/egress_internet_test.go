package integration

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"demesne/integration/fixture"

	"golang.org/x/sys/unix"
)

// internet simulates the internet for demesne: the servers of the test, in another network namespace, answer for
// every address of 8.0.0.0/8. Only 8.0.0.1 belongs to the machine.
type internet struct {
	*box
	elsewhere *fixture.Elsewhere
	ca        string // file with the certificate of all TLS servers

	mu   sync.Mutex
	seen []string // host and path of each request, and connections to raw servers
}

// internetHosts lists the names of the internet. dark.test exists, and no test allows it by default. own.test and
// inner.test resolve to this machine, and meta.test to the address where clouds hand out credentials.
const internetHosts = `127.0.0.1 localhost
8.1.1.1 good.test www.good.test git.test db.test
8.2.2.2 dark.test
8.0.0.1 own.test
127.0.0.1 inner.test
169.254.169.254 meta.test
`

// onInternet runs the calling test again in namespaces of its own, and body there.
func onInternet(t *testing.T, body func(*internet)) {
	t.Helper()
	if os.Getenv("DEMESNE_TEST_INTERNET") == "" {
		again(t)
		return
	}
	n := &internet{box: newBox(t)}
	n.connect()
	n.serve()
	body(n)
}

// onLevels is onInternet for sandboxes with namespaces, and for sandboxes at the level minimal, whose connections the
// runner makes. Both have the same network.
func onLevels(t *testing.T, body func(*internet)) {
	t.Helper()
	t.Run("full", func(t *testing.T) { onInternet(t, body) })
	t.Run("minimal", func(t *testing.T) {
		onInternet(t, func(n *internet) {
			n.under = []string{tools + "/nons"}
			body(n)
		})
	})
}

// again runs the test in a child process. Real root remains real root; any other user becomes root of a user
// namespace with one id.
func again(t *testing.T) {
	t.Helper()
	name := t.Name()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+strings.ReplaceAll(name, "/", "$/^")+"$", "-test.v")
	cmd.Env = append(os.Environ(), "DEMESNE_TEST_INTERNET=1", "DEMESNE_BIN="+bin, toolsVar+"="+tools)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		need(t, false, "namespaces: "+err.Error())
	}
	if err == nil && bytes.Contains(out, []byte("--- SKIP: "+name)) {
		t.Skipf("%s", out)
	}
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+name)) {
		t.Fatalf("%v\n%s", err, out)
	}
}

// connect gives the machine its network and the names.
func (n *internet) connect() {
	n.Helper()
	var err error
	if n.elsewhere, err = fixture.NewElsewhere(program(n, "ip")); err != nil {
		n.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		n.Fatal(err)
	}
	for at, text := range map[string]string{"/etc/hosts": internetHosts, "/etc/resolv.conf": "nameserver 8.9.9.9\noptions timeout:1 attempts:1\n"} {
		real, err := filepath.EvalSymlinks(at)
		if err != nil {
			n.Fatal(err)
		}
		if err := unix.Mount(n.file("net"+at, text, 0o644), real, "", unix.MS_BIND, ""); err != nil {
			n.Fatal(err)
		}
		n.Cleanup(func() { unix.Unmount(real, unix.MNT_DETACH) })
	}
}

// serve starts the servers: HTTP, HTTPS, git over both, and echo servers.
func (n *internet) serve() {
	n.Helper()
	cert := n.certificate("good.test", "www.good.test", "git.test", "dark.test", "own.test")
	web := &http.Server{Handler: http.HandlerFunc(n.answer)}
	n.Cleanup(func() { web.Close() })
	go web.Serve(n.listen("8.1.1.1:80"))
	go web.Serve(n.listen("8.2.2.2:80"))
	go web.Serve(n.listen("8.0.0.1:80"))
	for _, at := range []string{"8.1.1.1:443", "8.2.2.2:443"} {
		go web.Serve(tls.NewListener(n.listen(at), &tls.Config{Certificates: []tls.Certificate{cert}}))
	}
	for _, at := range []string{"8.1.1.1:22", "8.1.1.1:5432", "8.2.2.2:5432", "127.0.0.1:5432"} {
		go n.echo(n.listen(at))
	}
}

func (n *internet) listen(at string) net.Listener {
	n.Helper()
	var l net.Listener
	var err error
	n.at(at, func() { l, err = net.Listen("tcp", at) })
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { l.Close() })
	return l
}

// at calls f in the network namespace in which address is local.
func (n *internet) at(address string, f func()) {
	if strings.HasPrefix(address, "8.") && !strings.HasPrefix(address, "8.0.0.1:") {
		n.elsewhere.Do(f)
		return
	}
	f()
}

// answer is the handler of every web server.
func (n *internet) answer(w http.ResponseWriter, r *http.Request) {
	n.saw(r.Host + r.URL.Path)
	switch {
	case strings.Contains(r.URL.Path, ".git/"):
		h := cgi.Handler{Path: "/usr/lib/git-core/git-http-backend", Env: []string{"GIT_PROJECT_ROOT=" + n.dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}}
		h.ServeHTTP(w, r)
	case r.URL.Path == "/away":
		http.Redirect(w, r, "http://dark.test/", http.StatusFound)
	default:
		io.WriteString(w, "hello from "+r.Host+"\n")
	}
}

// echo sends a greeting, as servers of many protocols do, and echoes its input.
func (n *internet) echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			n.saw("tcp " + c.LocalAddr().String())
			io.WriteString(c, "220 welcome\n")
			io.Copy(c, c)
		}()
	}
}

func (n *internet) saw(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen = append(n.seen, what)
}

// heard reports whether any server saw a request that contains what.
func (n *internet) heard(what string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.seen, func(s string) bool { return strings.Contains(s, what) })
}

// certificate returns a self-signed certificate for names.
func (n *internet) certificate(names ...string) tls.Certificate {
	n.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		n.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the test's own"}, DNSNames: names, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		n.Fatal(err)
	}
	n.ca = n.file("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), 0o644)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// inside runs shell text in a sandbox and returns the result; any exit code is accepted.
func (n *internet) inside(script string, flags ...string) result {
	n.Helper()
	script = strings.NewReplacer("/in/ca.pem", `"$DEMESNE_IN"/ca.pem`, "/out/placeholder", `"$DEMESNE_OUT"/placeholder`).Replace(script)
	return n.demesne(append(append([]string{"run", "--in", n.ca + ":ca.pem"}, flags...), "--", "sh", "-c", script)...)
}

// start starts a command and waits until it prints word. stop ends it.
func (n *internet) start(cmd *exec.Cmd, word string) (stop func()) {
	n.Helper()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		n.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		n.Fatal(err)
	}
	b := make([]byte, len(word)+1)
	if k, err := io.ReadFull(pipe, b); string(b[:k]) != word+"\n" {
		n.Fatalf("%q said %q: %v: %s", cmd.Args, b[:k], err, errs.String())
	}
	return func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	}
}

func lines(t testing.TB, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(b), "\n")
}
