package main

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// ownUser accepts loopback connections from processes of this user and of root. It closes those of other users:
// they can reach a port on this machine too.
type ownUser struct{ net.Listener }

// Accept implements net.Listener.
func (l ownUser) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		uid, err := peer(c)
		if err == nil && (uid == 0 || uid == os.Getuid()) {
			return c, nil
		}
		c.Close()
		if err == nil {
			err = fmt.Errorf("from user %d: without a token only the server's own user may connect", uid)
		}
		fmt.Fprintf(os.Stderr, "demesne-mcp: refuse a connection: %v\n", err)
	}
}

// peer returns the user id of the process at the other end of a connection within this machine.
func peer(c net.Conn) (uid int, err error) {
	ours, theirs := address(c.LocalAddr()), address(c.RemoteAddr())
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(file)
		if err != nil {
			continue // no IPv6
		}
		uid, err := owner(f, theirs, ours)
		f.Close()
		if err == nil {
			return uid, nil
		}
	}
	return 0, fmt.Errorf("find the user of %v: no such socket", theirs)
}

func address(a net.Addr) netip.AddrPort {
	at := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// owner searches a table of proc_net_tcp(5) for the socket of a connection, and returns its uid. It considers
// only established sockets: the table reports root as the owner of a closed one.
func owner(table io.Reader, local, remote netip.AddrPort) (uid int, err error) {
	const established = "01"
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 8 || f[3] != established || !slices.Contains(spellings(local), f[1]) || !slices.Contains(spellings(remote), f[2]) {
			continue
		}
		return strconv.Atoi(f[7])
	}
	return 0, fmt.Errorf("find socket %v: %w", local, io.EOF)
}

// spellings returns an address as the tables for IPv4 and IPv6 print it: 32-bit words in the machine's byte
// order.
func spellings(at netip.AddrPort) (out []string) {
	sixteen := at.Addr().As16()
	bytes := sixteen[:]
	for _, b := range [][]byte{bytes[12:], bytes} {
		var s strings.Builder
		for ; len(b) > 0; b = b[4:] {
			word := binary.BigEndian.AppendUint32(nil, binary.NativeEndian.Uint32(b))
			s.WriteString(strings.ToUpper(hex.EncodeToString(word)))
		}
		out = append(out, fmt.Sprintf("%s:%04X", s.String(), at.Port()))
	}
	if !at.Addr().Is4() {
		return out[1:]
	}
	return out
}
