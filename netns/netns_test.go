package netns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"demesne/internal/procself"
)

func TestNew(t *testing.T) {
	asRootAndUser(t, func(t *testing.T) {
		n, err := New()
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		if own, err := os.Readlink("/proc/self/ns/net"); err != nil || own == nsName(t, n) {
			t.Errorf("the process is in the namespace: %v %v", own, err)
		}
		err = procself.OnDisposableThread(func() error {
			if err := unix.Setns(int(n.File.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			return useLoopback()
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// useLoopback checks the guarantees of New from inside: lo is the only interface, it is up, and port 80 can be
// bound.
func useLoopback() error {
	links, err := net.Interfaces()
	if err != nil || len(links) != 1 || links[0].Name != "lo" || links[0].Flags&net.FlagUp == 0 {
		return fmt.Errorf("interfaces %v: %v", links, err)
	}
	for name, want := range map[string]string{"ip_unprivileged_port_start": "0", "ping_group_range": "0\t0", "ip_forward": "0"} {
		b, err := os.ReadFile("/proc/sys/net/ipv4/" + name)
		if err != nil || strings.TrimSpace(string(b)) != want {
			return fmt.Errorf("%s is %q, not %q: %v", name, b, want, err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:80")
	if err != nil {
		return err
	}
	return l.Close()
}

func TestServersInside(t *testing.T) {
	asRootAndUser(t, func(t *testing.T) {
		n, err := New()
		if err != nil {
			t.Fatal(err)
		}
		at := netip.MustParseAddrPort("127.0.0.1:80")
		if _, err := n.DialTCP(t.Context(), at); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("a port without a listener: %v", err)
		}
		l, err := n.Listen(at)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go serveNames(listener(t, l))
		if _, err := n.Listen(at); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("a second listener: %v", err)
		}
		c, err := n.DialTCP(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if b, err := io.ReadAll(c); err != nil || string(b) != at.String() {
			t.Errorf("%q %v", b, err)
		}
		full, err := n.Listen(netip.MustParseAddrPort("127.0.0.1:81"))
		if err != nil {
			t.Fatal(err)
		}
		defer full.Close()
		unix.Listen(int(full.Fd()), 0) // one connection waits to be accepted; the next one is not answered
		if c, err := n.DialTCP(t.Context(), netip.MustParseAddrPort("127.0.0.1:81")); err == nil {
			defer c.Close()
		}
		soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := n.DialTCP(soon, netip.MustParseAddrPort("127.0.0.1:81")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a server that does not accept: %v", err)
		}
		again, err := n.Dup()
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		n.Close()
		if _, err := n.DialTCP(t.Context(), at); !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
		if c, err := again.DialTCP(t.Context(), at); err != nil {
			t.Errorf("a duplicate: %v", err)
		} else {
			c.Close()
		}
	})
}

func TestSysfs(t *testing.T) {
	asRootAndUser(t, func(t *testing.T) {
		n, err := New()
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		if n.Sysfs == nil {
			t.Skipf("no sysfs here: %v", n.SysfsErr)
		}
		at := fmt.Sprintf("/proc/self/fd/%d/", n.Sysfs.Fd())
		links, err := os.ReadDir(at + "class/net")
		if err != nil || len(links) != 1 || links[0].Name() != "lo" {
			t.Errorf("class/net has %v: %v", links, err)
		}
		if err := os.WriteFile(at+"class/net/lo/mtu", []byte("1500"), 0); err == nil {
			t.Error("sysfs is writable")
		}
	})
}

func TestVerifySeesMore(t *testing.T) {
	asRootAndUser(t, func(t *testing.T) {
		err := procself.OnDisposableThread(func() error {
			w := &wiring{}
			defer w.close()
			if err := errors.Join(w.enterSandbox(), w.enterGateway()); err != nil {
				return err
			}
			n := w.sandbox.ns
			if err := n.Verify(); err != nil {
				return fmt.Errorf("a new namespace: %w", err)
			}
			if err := w.addPair(); err != nil {
				return err
			}
			if err := n.Verify(); !errors.Is(err, ErrNotAlone) {
				return fmt.Errorf("an interface that is up: %v", err)
			}
			return verifyRoutes(w)
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// verifyRoutes adds routes that the sandbox of a gateway may not have, and checks that verify rejects each.
func verifyRoutes(w *wiring) error {
	pair := uint32(w.sandbox.link.Attrs().Index)
	if err := errors.Join(w.addAddresses(), w.ipv6Err, w.sandbox.ns.verify(pair)); err != nil {
		return fmt.Errorf("a gateway: %w", err)
	}
	for _, r := range []netlink.Route{
		{Dst: ipNet(netip.MustParsePrefix("0.0.0.0/0")), Gw: gateway4.Addr().AsSlice()},
		{Dst: ipNet(netip.MustParsePrefix("198.16.0.0/14"))},
		{Dst: ipNet(netip.MustParsePrefix("10.0.0.0/8")), Gw: gateway4.Addr().AsSlice()},
		{Dst: ipNet(netip.MustParsePrefix("198.19.0.0/16")), Gw: sandbox4.Addr().Next().AsSlice()},
		{Dst: ipNet(netip.MustParsePrefix("::/0")), Gw: gateway6.Addr().AsSlice()},
	} {
		r.LinkIndex = int(pair)
		if err := w.sandbox.nl.RouteAdd(&r); err != nil {
			continue // the kernel rejects it too
		}
		if err := w.sandbox.ns.verify(pair); !errors.Is(err, ErrNotAlone) {
			return fmt.Errorf("%v: %v", r, err)
		}
		if err := w.sandbox.nl.RouteDel(&r); err != nil {
			return err
		}
	}
	return nil
}

func TestProbeEgress(t *testing.T) {
	asRootAndUser(t, func(t *testing.T) {
		start := time.Now()
		if err := ProbeEgress(); err != nil {
			t.Fatal(err)
		}
		t.Logf("took %v", time.Since(start))
	})
}

// TestThreadsEnd checks that no thread stays in a namespace. It would keep the namespace alive, and /proc/self
// could show it.
func TestThreadsEnd(t *testing.T) {
	asRootAndUser(t, func(t *testing.T) {
		own, err := os.Readlink("/proc/self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			n, err := New()
			if err != nil {
				t.Fatal(err)
			}
			n.Close()
		}
		deadline := time.Now().Add(time.Minute)
		for {
			foreign := 0
			tasks, _ := filepath.Glob("/proc/self/task/*/ns/net")
			for _, task := range tasks {
				if at, err := os.Readlink(task); err == nil && at != own {
					foreign++
				}
			}
			if foreign == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d threads stayed", foreign)
			}
			time.Sleep(time.Millisecond)
		}
	})
}

func TestClosed(t *testing.T) {
	n := &NS{}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if err := n.Verify(); err == nil {
		t.Error("a closed namespace was verified")
	}
}

func nsName(t *testing.T, n *NS) string {
	t.Helper()
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", n.File.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		n, err := New()
		if err != nil {
			b.Skip(err)
		}
		n.Close()
	}
}

func BenchmarkProbeEgress(b *testing.B) {
	for b.Loop() {
		if err := ProbeEgress(); err != nil {
			b.Skip(err)
		}
	}
}
