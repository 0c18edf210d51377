package selftest

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func netProbes() []probe {
	all := []probe{
		{id: "N14", title: "connect to a server on the host's loopback", try: func(f *facts) error { return connects(f, "tcp", fmt.Sprintf("127.0.0.1:%d", f.TCP)) }},
		{id: "N14", title: "connect to it by IPv6", try: func(f *facts) error { return connects(f, "tcp", fmt.Sprintf("[::1]:%d", f.TCP)) }},
		{id: "N14", title: "connect to it by 0.0.0.0", try: func(f *facts) error { return connects(f, "tcp", fmt.Sprintf("0.0.0.0:%d", f.TCP)) }},
		{id: "N12", title: "connect to it by a mapped address", try: func(f *facts) error { return connects(f, "tcp", fmt.Sprintf("[::ffff:127.0.0.1]:%d", f.TCP)) }},
		{id: "N14", title: "connect to the machine's own address", try: func(f *facts) error { return connects(f, "tcp", at(f.Address, f.TCP)) }},
		{id: "N20", title: "send a datagram to the host's loopback", try: func(f *facts) error { return datagram(f, "127.0.0.1") }},
		{id: "N20", title: "send a datagram to the machine's own address", try: func(f *facts) error { return datagram(f, f.Address) }},
		{id: "N29", title: "connect to an abstract unix socket", try: func(f *facts) error { return connects(f, "unix", "@"+f.Abstract) }},
		{id: "N1", title: "find a route to the internet", try: func(*facts) error { return routed("192.0.2.1:53") }},
		{id: "N1", title: "find a route by IPv6", try: func(*facts) error { return routed("[2001:db8::1]:53") }},
		{id: "N13", title: "find a route to a cloud's metadata", try: func(*facts) error { return routed("169.254.169.254:80") }},
		{id: "N16", title: "ask the machine's name server", try: func(f *facts) error { return asks(f.Resolver) }},
		{id: "N1", title: "see an interface of the machine", try: func(f *facts) error {
			found, err := net.Interfaces()
			for _, i := range found {
				if f.Link != "" && i.HardwareAddr.String() == f.Link {
					return nil
				}
			}
			if err != nil {
				return err
			}
			return fmt.Errorf("it is not among %d", len(found))
		}},
	}
	for _, s := range []struct {
		id, title              string
		family, kind, protocol int
	}{
		{"N20", "raw IPv4", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{"N20", "raw IPv6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
		{"N20", "packet", unix.AF_PACKET, unix.SOCK_RAW, 0},
		{"N30", "VSOCK", unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		{"F20", "ALG", unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
		{"N30", "netfilter", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
		{"N30", "XFRM", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM},
		{"N30", "audit", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT},
		{"N30", "uevents", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT},
		{"N30", "XDP", unix.AF_XDP, unix.SOCK_RAW, 0},
		{"N30", "Bluetooth", unix.AF_BLUETOOTH, unix.SOCK_RAW, 1},
		{"N30", "PF_KEY", unix.AF_KEY, unix.SOCK_RAW, 2},
		{"N30", "RDS", unix.AF_RDS, unix.SOCK_SEQPACKET, 0},
		{"N30", "TIPC", unix.AF_TIPC, unix.SOCK_STREAM, 0},
		{"N30", "CAN", unix.AF_CAN, unix.SOCK_RAW, 1},
		{"N30", "SCTP", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP},
	} {
		all = append(all, probe{id: s.id, title: "make a socket of " + s.title, try: func(*facts) error {
			fd, err := unix.Socket(s.family, s.kind|unix.SOCK_CLOEXEC, s.protocol)
			if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ESOCKTNOSUPPORT) {
				return absent(err.Error())
			}
			if err == nil {
				unix.Close(fd)
			}
			return err
		}})
	}
	return all
}

func at(address string, port int) string { return net.JoinHostPort(address, fmt.Sprint(port)) }

// connects sends the secret to a server, which answers with it. Another server of the same address inside does not.
func connects(f *facts, network, address string) error {
	if strings.HasPrefix(address, ":") {
		return absent("the machine has no other address")
	}
	c, err := net.DialTimeout(network, address, perProbe/2)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(perProbe / 3))
	if _, err := c.Write([]byte(f.Secret + "\n")); err != nil {
		return err
	}
	answer := make([]byte, len(f.Secret))
	if _, err := c.Read(answer); err != nil {
		return err
	}
	if string(answer) != f.Secret {
		return errors.New("another server answers")
	}
	return nil
}

func datagram(f *facts, address string) error {
	if address == "" {
		return absent("the machine has no other address")
	}
	return connects(f, "udp", at(address, f.UDP))
}

// routed returns nil if the kernel finds a route. Nothing is sent.
func routed(address string) error {
	c, err := net.Dial("udp", address)
	if err == nil {
		c.Close()
	}
	return err
}

// asks sends a query for the root's name servers.
func asks(resolver string) error {
	if resolver == "" {
		return absent("the machine has no name server")
	}
	c, err := net.Dial("udp", net.JoinHostPort(resolver, "53"))
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(perProbe / 3))
	if _, err := c.Write([]byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x01")); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 512))
	return err
}
