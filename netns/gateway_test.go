package netns

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"demesne/internal/procself"
)

func gateway(t *testing.T) *Gateway {
	t.Helper()
	g, err := NewGateway()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	if g.NamedErr != nil || g.IPv6Err != nil {
		t.Fatalf("needs nft_tproxy and IPv6: %v, %v", g.NamedErr, g.IPv6Err)
	}
	return g
}

// within runs f on a thread in the sandbox.
func within(t *testing.T, g *Gateway, f func() error) {
	t.Helper()
	err := procself.OnDisposableThread(func() error {
		if err := unix.Setns(int(g.Sandbox.File.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
	if err != nil {
		t.Error(err)
	}
}

// serveNames accepts connections and answers each with its original destination.
func serveNames(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		fmt.Fprint(c, c.LocalAddr())
		c.Close()
	}
}

func dial(network, to string) (string, error) {
	d := net.Dialer{Timeout: 30 * time.Second}
	d.SetMultipathTCP(false)
	c, err := d.Dial(network, to)
	if err != nil {
		return "", err
	}
	defer c.Close()
	b, err := io.ReadAll(c)
	return string(b), err
}

// TestEscapeN1NoWayOut checks that connections arrive at the gateway's sockets, and that the sandbox reaches
// nothing else.
func TestEscapeN1NoWayOut(t *testing.T) {
	asRootAndUser(t, func(t *testing.T) {
		g := gateway(t)
		if err := g.Sandbox.Verify(); !errors.Is(err, ErrNotAlone) {
			t.Errorf("a sandbox with a way out is alone: %v", err)
		}
		for _, f := range append(g.Named, g.Proxy, g.DNSTCP) {
			go serveNames(listener(t, f))
		}
		within(t, g, func() (err error) {
			for _, to := range []string{
				"198.19.0.7:4321", "198.19.255.255:1", "198.19.9.9:65535", "198.18.0.1:3128", "198.18.0.1:53", "198.19.0.7:53", "198.19.0.7:3128",
				"[fd64:6d65:736e:1::7]:443", "[fd64:6d65:736e:1::]:80",
			} {
				if got, e := dial("tcp", to); e != nil || got != to {
					err = errors.Join(err, fmt.Errorf("to %s: arrived at %q: %v", to, got, e))
				}
			}
			return err
		})
		within(t, g, refusals)
		within(t, g, func() error {
			c, err := net.Dial("udp", DNSAddr().String())
			if err == nil {
				_, err = c.Write([]byte("hello"))
			}
			return err
		})
		b := make([]byte, 16)
		packets, err := net.FilePacketConn(g.DNS)
		if err != nil {
			t.Fatal(err)
		}
		defer packets.Close()
		packets.SetReadDeadline(time.Now().Add(30 * time.Second))
		if n, from, err := packets.(*net.UDPConn).ReadFromUDPAddrPort(b); err != nil || string(b[:n]) != "hello" || from.Addr() != sandbox4.Addr() {
			t.Errorf("%q from %v: %v", b[:n], from, err)
		}
	})
}

// refusals checks that packets without a socket or a route are refused at once, each with its own error.
func refusals() (all error) {
	for _, c := range []struct {
		network, to string
		want        syscall.Errno
	}{
		{"tcp", "1.1.1.1:443", unix.ENETUNREACH}, {"udp", "1.1.1.1:53", unix.ENETUNREACH}, {"tcp", "169.254.169.254:80", unix.ENETUNREACH},
		{"tcp", "10.0.0.1:22", unix.ENETUNREACH}, {"tcp", "[2606:4700::1111]:443", unix.ENETUNREACH}, {"tcp", "[fe80::1]:1", unix.EINVAL},
		{"tcp", "198.18.9.9:80", unix.ENETUNREACH}, {"tcp", "[fd64:6d65:736e::9]:80", unix.ENETUNREACH},
		{"udp", "198.19.0.7:443", unix.ECONNREFUSED}, {"udp", "[fd64:6d65:736e:1::7]:443", unix.ECONNREFUSED}, {"udp", "198.18.0.1:5353", unix.ECONNREFUSED},
	} {
		if err := refused(c.network, c.to); !errors.Is(err, c.want) {
			all = errors.Join(all, fmt.Errorf("%s %s: %v, want %v", c.network, c.to, err, c.want))
		}
	}
	return all
}

func refused(network, to string) error {
	c, err := net.DialTimeout(network, to, 30*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	if network == "tcp" {
		return nil
	}
	c.Write([]byte("hello"))
	c.SetReadDeadline(time.Now().Add(30 * time.Second))
	_, err = c.Read(make([]byte, 1))
	return err
}

// TestEscapeN20Datagrams checks that every packet of a QUIC burst is refused, not only the first six. Raw and
// packet sockets need a capability that no process inside has.
func TestEscapeN20Datagrams(t *testing.T) {
	asRootAndUser(t, func(t *testing.T) {
		g := gateway(t)
		within(t, g, func() error {
			for i := range 400 {
				to := []string{"198.19.0.1:443", "[fd64:6d65:736e:1::1]:443"}[i%2]
				if err := refused("udp", to); !errors.Is(err, unix.ECONNREFUSED) {
					return fmt.Errorf("packet %d to %s: %v", i, to, err)
				}
			}
			return nil
		})
	})
}

// TestEscapeNeighbours checks that a sandbox cannot fill the neighbour table, which all namespaces of a machine
// share. It sends to arbitrary addresses through its interface, which needs no route, and must leave no unanswered
// requests.
func TestEscapeNeighbours(t *testing.T) {
	asRootAndUser(t, func(t *testing.T) {
		within(t, gateway(t), func() error {
			s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(s)
			if err := unix.BindToDevice(s, pairName); err != nil {
				return err
			}
			for i := range byte(100) {
				if err := unix.Sendto(s, []byte("x"), 0, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{10, 0, 0, i}}); err != nil {
					return err
				}
			}
			neighbours, err := netlink.NeighList(0, netlink.FAMILY_ALL)
			for _, n := range neighbours {
				if n.State != netlink.NUD_NOARP {
					err = errors.Join(err, fmt.Errorf("the kernel keeps %v: state %#x", n.IP, n.State))
				}
			}
			return err
		})
	})
}

// TestEscapeN21Sandboxes checks that two sandboxes with the same addresses reach only their own gateways. Neither
// reaches the other's listeners, nor this process's.
func TestEscapeN21Sandboxes(t *testing.T) {
	asRootAndUser(t, func(t *testing.T) {
		one, two := gateway(t), gateway(t)
		own, err := net.Listen("tcp", "0.0.0.0:0")
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		port := own.Addr().(*net.TCPAddr).Port
		for i, g := range []*Gateway{one, two} {
			for _, f := range g.Named {
				go answer(listener(t, f), fmt.Sprint(i))
			}
		}
		within(t, one, func() error { // a server in sandbox 0, on every address
			l, err := net.Listen("tcp4", "0.0.0.0:7777")
			if err == nil {
				t.Cleanup(func() { l.Close() })
				go answer(l, "server")
			}
			return err
		})
		for i, g := range []*Gateway{one, two} {
			within(t, g, func() error {
				for _, to := range []string{"198.19.0.1:80", "198.18.0.2:7777", fmt.Sprintf("198.18.0.1:%d", port), fmt.Sprintf("127.0.0.1:%d", port), "127.0.0.1:7777"} {
					got, err := dial("tcp", to)
					want := map[string]string{"198.19.0.1:80": fmt.Sprint(i)}[to]
					if i == 0 && strings.HasSuffix(to, ":7777") {
						want = "server" // its own
					}
					if got != want || (err == nil) != (want != "") {
						return fmt.Errorf("sandbox %d to %s: %q %v, want %q", i, to, got, err, want)
					}
				}
				return nil
			})
		}
	})
}

// TestVerify checks that Verify tests real traffic: a gateway without the tproxy rule falls back, and one without a
// socket fails.
func TestVerify(t *testing.T) {
	asRootAndUser(t, func(t *testing.T) {
		g := gateway(t)
		for range 3 {
			if err := g.Verify(); err != nil || g.NamedErr != nil || len(g.Named) == 0 {
				t.Fatalf("whole: %v, %v", err, g.NamedErr)
			}
		}
		g.Proxy.Close()
		if err := g.Verify(); err == nil {
			t.Error("nothing listens for the proxy")
		}
		other := gateway(t)
		err := (&NS{File: other.namespace}).within(func() error {
			c, err := nftables.New()
			if err == nil {
				c.FlushRuleset()
				err = c.Flush()
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Verify(); err != nil || !errors.Is(other.NamedErr, unix.ECONNREFUSED) || other.Named != nil {
			t.Errorf("without the rule: %v, %v", err, other.NamedErr)
		}
		ports, err := other.Listen(8443)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range ports {
			go serveNames(listener(t, f))
		}
		within(t, other, func() error {
			if got, err := dial("tcp", "198.19.0.7:8443"); err != nil || got != "198.19.0.7:8443" {
				return fmt.Errorf("arrived at %q: %v", got, err)
			}
			if _, err := dial("tcp", "198.19.0.7:8444"); !errors.Is(err, unix.ECONNREFUSED) {
				return fmt.Errorf("a port without a listener: %v", err)
			}
			return nil
		})
	})
}

// inGateway runs f on a thread in the gateway's own namespace.
func inGateway(t *testing.T, g *Gateway, f func() error) {
	t.Helper()
	if err := (&NS{File: g.namespace}).within(f); err != nil {
		t.Fatal(err)
	}
}

// TestVerifyIPv6 checks that Verify tests IPv6 as well, and that IPv4 still works if IPv6 fails.
func TestVerifyIPv6(t *testing.T) {
	asRootAndUser(t, func(t *testing.T) {
		lost := gateway(t)
		inGateway(t, lost, func() error { // the gateway's address is removed, so nothing answers for it
			link, err := netlink.LinkByName(pairName)
			if err != nil {
				return err
			}
			return netlink.AddrDel(link, &netlink.Addr{IPNet: ipNet(gateway6)})
		})
		deaf := gateway(t)
		deaf.Named[1].Close() // no listener where the rule sends the connection
		deaf.Named[1], _ = os.Open(os.DevNull)
		for name, g := range map[string]*Gateway{"no neighbour": lost, "no listener": deaf} {
			if err := g.Verify(); err != nil || g.NamedErr != nil || g.IPv6Err == nil || len(g.Named) != 1 {
				t.Errorf("%s: %v, %v, %v, %d sockets", name, err, g.NamedErr, g.IPv6Err, len(g.Named))
			}
			go serveNames(listener(t, g.Named[0]))
			within(t, g, func() error {
				if got, err := dial("tcp", "198.19.0.7:443"); err != nil || got != "198.19.0.7:443" {
					return fmt.Errorf("%s: IPv4 arrived at %q: %v", name, got, err)
				}
				return nil
			})
		}
		ports := gateway(t)
		ports.closeNamed() // as without the rule
		if err := ports.Verify(); err != nil || ports.IPv6Err != nil {
			t.Errorf("without the rule: %v, %v", err, ports.IPv6Err)
		}
	})
}

// TestFirstPackets checks that a new gateway loses no packet, not even the first, over IPv4 or IPv6: TCP must not
// have retransmitted.
func TestFirstPackets(t *testing.T) {
	asRootAndUser(t, func(t *testing.T) {
		for range 40 {
			g := gateway(t)
			for _, f := range g.Named {
				go serveNames(listener(t, f))
			}
			within(t, g, func() error {
				for _, to := range []string{"[fd64:6d65:736e:1::7]:443", "198.19.0.7:443"} {
					c, err := net.DialTimeout("tcp", to, 20*time.Second)
					if err != nil {
						return err
					}
					raw, _ := c.(*net.TCPConn).SyscallConn()
					raw.Control(func(fd uintptr) {
						if info, e := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); e != nil || info.Total_retrans != 0 {
							err = fmt.Errorf("to %s: %d packets were sent again: %v", to, info.Total_retrans, e)
						}
					})
					if c.Close(); err != nil {
						return err
					}
				}
				return nil
			})
			g.Close()
		}
	})
}

// TestVerifyInterrupted checks that signals, which the Go runtime sends to its own threads at any time, do not make
// Verify fail.
func TestVerifyInterrupted(t *testing.T) {
	asRootAndUser(t, func(t *testing.T) {
		g := gateway(t)
		over := make(chan struct{})
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-over:
					return
				default:
					interruptThreads()
				}
			}
		}()
		for range 100 {
			if err := g.Verify(); err != nil || g.NamedErr != nil {
				t.Errorf("interrupted: %v, %v", err, g.NamedErr)
				break
			}
		}
		close(over)
		<-stopped
	})
}

// interruptThreads sends every thread of this process the signal that the runtime preempts goroutines with.
func interruptThreads() {
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		if tid, err := strconv.Atoi(task.Name()); err == nil {
			unix.Tgkill(os.Getpid(), tid, unix.SIGURG)
		}
	}
}

// listener serves a socket of a gateway, as another process would.
func listener(t *testing.T, f *os.File) net.Listener {
	l, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func answer(l net.Listener, text string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		fmt.Fprint(c, text)
		c.Close()
	}
}

// TestListen checks that listeners for single ports work without the rule, and that the gateway's own ports keep
// their connections.
func TestListen(t *testing.T) {
	asRootAndUser(t, func(t *testing.T) {
		g := gateway(t)
		g.closeNamed() // the rule then finds no listener and lets the packet pass
		go answer(listener(t, g.Proxy), "proxy")
		for _, port := range []uint16{443, 3128} {
			all, err := g.Listen(port)
			if err != nil || len(all) != 2 {
				t.Fatal(all, err)
			}
			for _, f := range all {
				t.Cleanup(func() { f.Close() })
				go serveNames(listener(t, f))
			}
		}
		within(t, g, func() error {
			for to, want := range map[string]string{
				"198.19.0.7:443": "198.19.0.7:443", "[fd64:6d65:736e:1::7]:443": "[fd64:6d65:736e:1::7]:443",
				"198.19.0.7:3128": "198.19.0.7:3128", "198.18.0.1:3128": "proxy",
			} {
				if got, err := dial("tcp", to); err != nil || got != want {
					return fmt.Errorf("%s: %q %v", to, got, err)
				}
			}
			if _, err := dial("tcp", "198.19.0.7:80"); !errors.Is(err, unix.ECONNREFUSED) {
				return fmt.Errorf("a port without a listener: %v", err)
			}
			return nil
		})
	})
}

// TestGatewaysLeaveNothing makes 1000 gateways per caller, forty alive at once, and counts descriptors and
// interfaces. As root the test runs for root and for an ordinary user, which makes thousands.
func TestGatewaysLeaveNothing(t *testing.T) {
	asRootAndUser(t, func(t *testing.T) {
		before := descriptors(t)
		for range 5 {
			var some []*Gateway
			for range 40 {
				g, err := NewGateway()
				if err != nil {
					t.Fatal(err)
				}
				some = append(some, g)
			}
			for _, g := range some {
				if err := errors.Join(g.Close(), g.Close()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if after := descriptors(t); after > before+2 {
			t.Errorf("%d descriptors, before %d", after, before)
		}
		if links, err := net.Interfaces(); err != nil || strings.Contains(fmt.Sprint(links), pairName) {
			t.Errorf("%v %v", links, err)
		}
	})
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func TestAddresses(t *testing.T) {
	v4, v6 := Pools()
	if v4.Overlaps(gateway4) || v6.Overlaps(gateway6) || gateway4.Masked() != sandbox4.Masked() || gateway6.Masked() != sandbox6.Masked() ||
		v4.Addr().BitLen()-v4.Bits() != v6.Addr().BitLen()-v6.Bits() {
		t.Error(v4, v6)
	}
	if ProxyAddr() != netip.MustParseAddrPort("198.18.0.1:3128") || DNSAddr() != netip.MustParseAddrPort("198.18.0.1:53") {
		t.Error(ProxyAddr(), DNSAddr())
	}
}

// TestPair checks that both ends of the pair carry packets, send no ARP requests, and have only the addresses they
// were given.
func TestPair(t *testing.T) {
	asRootAndUser(t, func(t *testing.T) {
		g := gateway(t)
		for name, ns := range map[string]*NS{"sandbox": g.Sandbox, "gateway": {File: g.namespace}} {
			err := ns.within(func() error {
				link, err := netlink.LinkByName(pairName)
				if err != nil {
					return err
				}
				if a := link.Attrs(); a.OperState != netlink.OperUp || a.RawFlags&unix.IFF_NOARP == 0 {
					return fmt.Errorf("it is %v, with flags %#x", a.OperState, a.RawFlags)
				}
				addrs, err := netlink.AddrList(link, netlink.FAMILY_ALL)
				if len(addrs) != 2 {
					return errors.Join(err, fmt.Errorf("addresses %v", addrs))
				}
				return err
			})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func BenchmarkNewGateway(b *testing.B) {
	for b.Loop() {
		g, err := NewGateway()
		if err != nil {
			b.Skip(err)
		}
		g.Close()
	}
}
