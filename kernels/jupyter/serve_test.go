package jupyter

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"demesne/kernels"
)

// ports returns free ports of the loopback.
func ports(t *testing.T) (all [5]uint16) {
	for i := range all {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		all[i] = uint16(l.Addr().(*net.TCPAddr).Port)
	}
	return all
}

// TestClientsOfOthers checks that no channel of a kernel answers another user, over ports and over sockets that everyone may
// use, and that the own user's client gets what is published.
func TestClientsOfOthers(t *testing.T) {
	for _, transport := range []string{"tcp", "ipc"} {
		p := ports(t)
		file := connectionFile{kernels.Connection{Transport: transport, IP: "127.0.0.1", Key: "key", Scheme: "hmac-sha256",
			Shell: p[0], IOPub: p[1], Stdin: p[2], Control: p[3], HB: p[4]}}
		if transport == "ipc" {
			dir, err := os.MkdirTemp("/tmp", "demesne-ipc")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			os.Chmod(dir, 0o777)
			file.IP = filepath.Join(dir, "kernel")
		}
		c := &clients{key: []byte("key"), take: func(*kernels.Peer, string, *kernels.Message) {}, warn: func(string) {}}
		if err := c.listen(file); err != nil {
			t.Fatal(err)
		}
		defer c.close()
		for name, port := range file.ports() {
			network, address := file.address(port)
			if transport == "ipc" {
				os.Chmod(address, 0o777)
			}
			if os.Getuid() == 0 { // root is needed to become another user
				if got := stranger(t, network, address); got != "" {
					t.Errorf("%s %s: another user got %q", transport, name, got)
				}
			}
		}
		published(t, c, file)
	}
}

// stranger connects as another user, and returns what it is sent.
func stranger(t *testing.T, network, address string) string {
	t.Helper()
	family, at := "AF_UNIX", fmt.Sprintf("%q", address)
	if network == "tcp" {
		host, port, _ := strings.Cut(address, ":")
		family, at = "AF_INET", fmt.Sprintf("(%q, %s)", host, port)
	}
	// ZMTP's greeting, and READY of a subscriber that names itself; perhaps the server answers only these.
	cmd := exec.Command("/usr/bin/python3", "-c", fmt.Sprintf(`import socket
s = socket.socket(socket.%s)
s.settimeout(20) # only a fault lets it wait
s.connect(%s)
try:
    s.sendall(b"\xff\0\0\0\0\0\0\0\1\x7f\3\0" + b"NULL".ljust(20, b"\0") + bytes(32) + b"\4\x19\5READY\x0bSocket-Type\0\0\0\3SUB\0\1\1")
    while data := s.recv(4096): print(data)
except OSError: pass`, family, at))
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// published checks that a client of this user gets a message.
func published(t *testing.T, c *clients, file connectionFile) {
	t.Helper()
	network, address := file.address(file.IOPub)
	conn, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	sub, err := kernels.Dial(conn, kernels.Sub, []byte("key"))
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	got := make(chan *kernels.Message, 1)
	go func() {
		m, _ := sub.Receive()
		got <- m
	}()
	for {
		c.publish(&kernels.Message{Header: newHeader("status"), Metadata: empty, Content: empty})
		select {
		case m := <-got:
			if m == nil || m.Header.Type != "status" {
				t.Errorf("received %+v", m)
			}
			return
		case <-time.After(10 * time.Millisecond): // the client is not added yet
		case <-t.Context().Done():
			t.Fatal("nothing is received")
		}
	}
}
