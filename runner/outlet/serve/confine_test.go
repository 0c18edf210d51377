package serve

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// TestConfine confines a process of its own and tries what is left to it.
func TestConfine(t *testing.T) {
	dir := os.Getenv("DEMESNE_TEST_CONFINE")
	if dir == "" {
		dir = t.TempDir()
		os.WriteFile(dir+"/f", nil, 0o644)
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestConfine$", "-test.v")
		cmd.Env = append(os.Environ(), "DEMESNE_TEST_CONFINE="+dir)
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS")) {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if err := Confine(); err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/thread-self/status")
	if err == nil {
		t.Errorf("/proc can be read: %s", status)
	}
	if err := unix.Mount("x", "/mnt", "tmpfs", 0, ""); !errors.Is(err, unix.EPERM) {
		t.Errorf("mount: %v", err)
	}
	abi, _ := ll.LandlockGetABIVersion()
	for name, do := range map[string]func() error{
		"read a file":  func() error { _, err := os.ReadFile(dir + "/f"); return err },
		"write a file": func() error { return os.WriteFile(dir+"/g", nil, 0o644) },
		"write /etc":   func() error { return os.WriteFile("/etc/demesne-test", nil, 0o644) },
		"execute":      func() error { return exec.Command("/bin/true").Run() },
		"listen": func() error {
			plain := net.ListenConfig{}
			plain.SetMultipathTCP(false)
			l, err := plain.Listen(context.Background(), "tcp", "127.0.0.1:0")
			if err == nil {
				l.Close()
			}
			if abi < 4 {
				return unix.EACCES // this kernel knows no rule for it
			}
			return err
		},
	} {
		if err := do(); !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b, err := os.ReadFile("/etc/resolv.conf"); err != nil {
		t.Errorf("%q: %v", b, err)
	}
	if _, err := os.ReadFile("/etc/hosts"); err != nil {
		t.Error(err)
	}
	if _, err := net.InterfaceAddrs(); err != nil {
		t.Error(err)
	}
	if _, err := x509.SystemCertPool(); err != nil {
		t.Error(err)
	}
}

// Whatever leads out of /etc can be followed.
func TestPaths(t *testing.T) {
	for _, p := range paths() {
		if !strings.HasPrefix(p, "/") || p == "/" {
			t.Errorf("%q is to be readable", p)
		}
	}
}
