package proxy

import (
	"errors"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/need"
)

// configure runs lines of ip(8).
func configure(t testing.TB, lines string) {
	t.Helper()
	program, err := exec.LookPath("ip")
	if err != nil {
		program = "/usr/sbin/ip"
	}
	need.Program(t, program)
	for line := range strings.Lines(lines) {
		if out, err := exec.Command(program, strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", line, err, out)
		}
	}
}

// TestEscapeN34Routes checks addresses of all kinds, in both families, against the kernel's routes.
func TestEscapeN34Routes(t *testing.T) {
	configure(t, `link set lo up
		link add here type veth peer name there
		addr add 9.1.0.1/24 dev here
		addr add 2a00:1450:1::1/64 dev here nodad
		link set here up
		link set there up
		route add default via 9.1.0.2
		-6 route add default via 2a00:1450:1::2
		route add local 9.2.0.0/16 dev lo
		-6 route add local 2a00:1450:2::/64 dev lo
		route add broadcast 9.3.0.7 dev lo
		-6 route add anycast 2a00:1450:3::7 dev here
		route add unreachable 9.4.0.0/16
		route add prohibit 9.5.0.0/16
		route add blackhole 9.6.0.0/16
		-6 route add unreachable 2a00:1450:4::/64
		route add local 9.7.0.1 dev lo table 77
		rule add to 9.7.0.1 ipproto tcp dport 80 lookup 77`)
	// The kernel makes the route of an IPv6 address of its own a moment after the address.
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if own, _ := OwnAddress(netip.MustParseAddrPort("[2a00:1450:1::1]:1")); own {
			break
		}
	}
	for _, c := range []struct {
		at      string
		own     bool
		unknown bool
	}{
		{"127.0.0.1:1", true, false},
		{"127.9.9.9:1", true, false},
		{"[::1]:1", true, false},
		{"9.1.0.1:1", true, false},
		{"[2a00:1450:1::1]:1", true, false},
		{"[::ffff:9.1.0.1]:1", true, false},
		{"9.1.0.255:1", true, false}, // broadcast
		{"255.255.255.255:1", true, false},
		{"9.2.3.4:1", true, false},
		{"[2a00:1450:2::5]:1", true, false},
		{"9.3.0.7:1", true, false},
		{"[2a00:1450:3::7]:1", true, false},
		{"224.0.0.1:1", true, false},
		{"[ff02::1%here]:1", true, false},
		{"9.7.0.1:80", true, false}, // by a rule (ip-rule) for that port
		{"9.7.0.1:81", false, false},
		{"9.1.0.2:1", false, false},
		{"1.1.1.1:443", false, false},
		{"[2a00:1450:1::2]:1", false, false},
		{"[2606:4700::1]:443", false, false},
		{"9.4.0.1:1", false, false},
		{"9.5.0.1:1", false, false},
		{"[2a00:1450:4::1]:1", false, false},
		{"9.6.0.1:1", false, true},
	} {
		own, err := OwnAddress(netip.MustParseAddrPort(c.at))
		if own != c.own || (err != nil) != c.unknown {
			t.Errorf("%s: %v, %v; want %v, unknown %v", c.at, own, err, c.own, c.unknown)
		}
	}
}

// TestUnknown checks that Own returns an error when no descriptors are free.
func TestUnknown(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	none := before
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	own, err := OwnAddress(netip.MustParseAddrPort("127.0.0.1:1"))
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if own || !errors.Is(err, unix.EMFILE) {
		t.Errorf("%v, %v", own, err)
	}
}

// TestUnderstand checks that a malformed answer is an error.
func TestUnderstand(t *testing.T) {
	message := func(what uint16, number byte, body ...byte) []byte {
		return append([]byte{0, 0, 0, 0, byte(what), byte(what >> 8), 0, 0, number, 0, 0, 0, 0, 0, 0, 0}, body...)
	}
	for name, b := range map[string][]byte{
		"nothing":        nil,
		"a short header": make([]byte, 15),
		"a short route":  message(unix.RTM_NEWROUTE, sequence, make([]byte, 11)...),
		"another number": message(unix.RTM_NEWROUTE, sequence+1, make([]byte, 12)...),
		"another type":   message(unix.RTM_NEWADDR, sequence, make([]byte, 12)...),
		"a short error":  message(unix.NLMSG_ERROR, sequence, 0, 0, 0),
		"no error":       message(unix.NLMSG_ERROR, sequence, 0, 0, 0, 0),
	} {
		if kind, err := routeOf(b); err == nil {
			t.Errorf("%s: %d", name, kind)
		}
	}
}

func BenchmarkOwn(b *testing.B) {
	configure(b, "link set lo up")
	at := netip.MustParseAddrPort("127.0.0.1:1")
	for b.Loop() {
		if _, err := OwnAddress(at); err != nil {
			b.Fatal(err)
		}
	}
}
