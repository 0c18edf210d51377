package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"demesne/proxy/policy"
)

// The supported part of SOCKS5 (RFC 1928): no authentication, CONNECT, names or addresses.
//
//	client: 5, n, methods          server: 5, method
//	client: 5, command, 0, type, address, port    server: 5, reply, 0, 1, 0.0.0.0:0
const (
	socksVersion = 5

	socksNoAuth   = 0
	socksNoMethod = 0xff
	socksConnect  = 1

	socksIPv4 = 1
	socksName = 3
	socksIPv6 = 4

	socksOK          = 0
	socksForbidden   = 2
	socksUnreachable = 4
	socksCommand     = 7
	socksAddress     = 8
)

var errSOCKS = errors.New("malformed SOCKS5")

// socksRequest is a parsed request. reply is the code to answer when parsing failed, or 0.
type socksRequest struct {
	host  string
	port  uint16
	reply byte
}

// readSOCKS reads the greeting and the request from c, and answers the greeting.
func readSOCKS(c io.ReadWriter) (r socksRequest, err error) {
	var b [256]byte
	if _, err := io.ReadFull(c, b[:2]); err != nil || b[0] != socksVersion {
		return r, errors.Join(errSOCKS, err)
	}
	methods := b[2 : 2+min(int(b[1]), 254)]
	if _, err := io.ReadFull(c, methods); err != nil {
		return r, errors.Join(errSOCKS, err)
	}
	if !slices.Contains(methods, socksNoAuth) {
		c.Write([]byte{socksVersion, socksNoMethod})
		return r, fmt.Errorf("%w: the client insists on authentication", errSOCKS)
	}
	if _, err := c.Write([]byte{socksVersion, socksNoAuth}); err != nil {
		return r, err
	}
	if _, err := io.ReadFull(c, b[:4]); err != nil || b[0] != socksVersion || b[2] != 0 {
		return r, errors.Join(errSOCKS, err)
	}
	if b[1] != socksConnect {
		return socksRequest{reply: socksCommand}, fmt.Errorf("%w: command %d: only CONNECT is supported", errSOCKS, b[1])
	}
	return readSOCKSTarget(c, b[3])
}

func readSOCKSTarget(c io.Reader, kind byte) (r socksRequest, err error) {
	var b [256 + 2]byte
	n := map[byte]int{socksIPv4: 4, socksIPv6: 16}[kind]
	switch kind {
	case socksName:
		if _, err := io.ReadFull(c, b[:1]); err != nil {
			return r, errors.Join(errSOCKS, err)
		}
		n = int(b[0])
	case socksIPv4, socksIPv6:
	default:
		return socksRequest{reply: socksAddress}, fmt.Errorf("%w: address type %d", errSOCKS, kind)
	}
	if _, err := io.ReadFull(c, b[:n+2]); err != nil {
		return r, errors.Join(errSOCKS, err)
	}
	r.port = uint16(b[n])<<8 | uint16(b[n+1])
	r.host = string(b[:n])
	if kind != socksName {
		a, _ := netip.AddrFromSlice(b[:n])
		r.host = a.String()
	}
	return r, nil
}

func socksReply(code byte) []byte { return []byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0} }

// serveSOCKS serves a connection whose first byte is the version of SOCKS5.
func (p *Proxy) serveSOCKS(c *net.TCPConn) {
	r, err := readSOCKS(c)
	if err != nil {
		if r.reply != 0 {
			c.Write(socksReply(r.reply))
		}
		p.malformed("socks", "", err).end()
		p.release(c)
		return
	}
	c.SetReadDeadline(time.Time{})
	f := p.askSOCKS(r)
	up, ok := f.ready(p.ctx, func(code int) {
		reply := map[int]byte{http.StatusForbidden: socksForbidden, http.StatusBadGateway: socksUnreachable}[code]
		c.Write(socksReply(reply))
	})
	if !ok {
		f.end()
		p.release(c)
		return
	}
	if _, err := c.Write(socksReply(socksOK)); err != nil {
		f.giveUp(up, err)
		p.release(c)
		return
	}
	f.carry(c, nil, up)
}

func (p *Proxy) askSOCKS(r socksRequest) *flow {
	q, err := policy.Ask(r.host, r.port)
	if err == nil && r.port == 0 {
		err = errors.New("port 0")
	}
	if err != nil {
		return p.malformed("socks", r.host, err)
	}
	return p.ask("socks", q)
}
