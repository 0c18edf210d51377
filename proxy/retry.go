package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// TLS records (RFC 8446, 5.1) have a type, a version, a length of two bytes and a body. Handshake messages run
// through the bodies of their records and have a type, a length of three bytes and a body.
const (
	recordChangeCipherSpec = 20
	recordAlert            = 21
	recordHandshake        = 22
	recordData             = 23

	recordHeader = 5
	maxRecord    = 16384 + 256

	messageHeader  = 4
	messageServer  = 2                      // ServerHello
	serverHelloEnd = messageHeader + 2 + 32 // the end of its random
)

// retryRandom is the random of a ServerHello that is a HelloRetryRequest (RFC 8446, 4.1.3).
var retryRandom = []byte("\xcf\x21\xad\x74\xe5\x9a\x61\x11\xbe\x1d\x8c\x02\x1e\x65\xb8\x91\xc2\xa2\x11\x16\x7a\xbb\x8c\x5e\x07\x9e\x09\xe2\xc8\xa8\x33\x9c")

// helloEnd returns the offset at which the records of the first handshake message in b end. It returns false when
// the message is incomplete or another one begins in its last record. A client could send a second ClientHello
// there before a server asks for it.
func helloEnd(b []byte) (end int, ok bool) {
	var message []byte
	for len(b)-end >= recordHeader && b[end] == recordHandshake {
		n := recordHeader + int(binary.BigEndian.Uint16(b[end+3:]))
		if n > len(b)-end {
			return 0, false
		}
		message = append(message, b[end+recordHeader:end+n]...)
		end += n
		if len(message) < messageHeader {
			continue
		}
		switch whole := messageHeader + int(binary.BigEndian.Uint32(message)&0xffffff); {
		case len(message) == whole:
			return end, true
		case len(message) > whole:
			return 0, false
		}
	}
	return 0, false
}

// serverScan searches the stream of a TLS server for HelloRetryRequests. The stream may come in pieces. The zero
// value is ready to use.
type serverScan struct {
	header  []byte // of the current record
	left    int    // bytes of its body still to come
	message []byte // start of the current handshake message
	skip    int    // bytes of handshake messages to skip
}

// verdict is the meaning of a server's first message.
type verdict int

const (
	unknown    verdict = iota
	noRetry            // a ServerHello, or no TLS: the server would accept no further ClientHello
	helloAgain         // HelloRetryRequest
)

// scan reads b. It returns a verdict and the rest of b after it. After helloAgain it searches for the next
// ServerHello.
func (s *serverScan) scan(b []byte) (v verdict, rest []byte) {
	for len(b) > 0 {
		if s.left == 0 {
			n := min(len(b), recordHeader-len(s.header))
			s.header, b = append(s.header, b[:n]...), b[n:]
			if !plausible(s.header) {
				return noRetry, b
			}
			if len(s.header) < recordHeader {
				continue
			}
			s.left = int(binary.BigEndian.Uint16(s.header[3:]))
		}
		n := min(len(b), s.left)
		if s.header[0] == recordHandshake {
			v, n = s.handshake(b[:n])
		}
		b = b[n:]
		if s.left -= n; s.left == 0 {
			s.header = s.header[:0]
		}
		if v != unknown {
			return v, b
		}
	}
	return unknown, nil
}

// plausible reports whether header may begin a record that a server sends before it has keys.
func plausible(header []byte) bool {
	switch {
	case header[0] != recordHandshake && header[0] != recordAlert && header[0] != recordChangeCipherSpec:
		return false
	case len(header) > 1 && header[1] != 3:
		return false
	}
	return len(header) < recordHeader || binary.BigEndian.Uint16(header[3:]) <= maxRecord
}

// handshake reads a piece of handshake messages up to a verdict. It returns how many bytes it read.
func (s *serverScan) handshake(b []byte) (v verdict, n int) {
	n = min(s.skip, len(b))
	s.skip -= n
	more := min(len(b)-n, serverHelloEnd-len(s.message))
	s.message = append(s.message, b[n:n+more]...)
	n += more
	switch {
	case len(s.message) > 0 && s.message[0] != messageServer:
		return noRetry, n
	case len(s.message) < serverHelloEnd:
		return unknown, n
	case !bytes.Equal(s.message[messageHeader+2:], retryRandom):
		return noRetry, n
	}
	s.skip = max(0, int(binary.BigEndian.Uint32(s.message)&0xffffff)+messageHeader-serverHelloEnd)
	s.message = s.message[:0]
	return helloAgain, n
}

// tunnelTLS is tunnel for TLS. head begins with a ClientHello for the flow's name; the server has its first sent
// bytes already. Each further ClientHello that the server asks for must have that name too. Until the server's
// first message, only the ClientHello is forwarded.
func (f *flow) tunnelTLS(c *net.TCPConn, head []byte, sent int, up net.Conn) {
	end, ok := helloEnd(head)
	if !ok {
		f.deny("TLS with a second message in the record of the ClientHello")
		c.Write(unrecognizedName)
		up.Close()
		return
	}
	if f.p.hold(closer{up}) != nil {
		up.Close()
		return
	}
	defer f.p.release(closer{up})
	bytes := f.p.spent.of(f.d.Rule)
	if !f.send(up, head[sent:end], bytes) {
		return
	}
	// A server asks once (RFC 8446, 4.1.4), or again as an error. Until the client has seen that, copying must go on.
	verdicts, done := make(chan verdict, 2), make(chan struct{})
	go func() {
		f.answers(c, up, bytes, verdicts)
		close(done)
	}()
	if f.heldToName(c, head[end:], up, bytes, verdicts) {
		f.out.Add(pump(up, c, bytes))
	} else {
		c.Close()
		up.Close()
	}
	for range verdicts {
	}
	<-done
	f.sayCut(bytes)
}

// answers copies from the server. It sends one verdict for each HelloRetryRequest and closes verdicts after the
// last.
func (f *flow) answers(c *net.TCPConn, up net.Conn, bytes *budget, verdicts chan<- verdict) {
	buf := buffers.Get().(*[pieceSize]byte)
	n, err := scanned(c, up, buf[:], bytes, verdicts)
	buffers.Put(buf)
	close(verdicts)
	if f.in.Add(n); err != nil && err != io.EOF {
		c.Close()
		up.Close()
		return
	}
	f.in.Add(pump(c, up, bytes)) // it meets the end again
}

func scanned(c *net.TCPConn, up net.Conn, buf []byte, b *budget, verdicts chan<- verdict) (n int64, err error) {
	var s serverScan
	for {
		got, rerr := up.Read(buf)
		m, err := b.pass(c, buf[:got])
		if n += m; err != nil {
			return n, err
		}
		for rest := buf[:got]; len(rest) > 0; {
			var v verdict
			switch v, rest = s.scan(rest); v {
			case noRetry:
				return n, nil
			case helloAgain:
				verdicts <- v
			}
		}
		if rerr != nil {
			return n, rerr
		}
	}
}

// heldToName waits until the server has accepted a ClientHello. head holds the bytes that the client sent after
// the first one. It returns false when the connection must end.
func (f *flow) heldToName(c *net.TCPConn, head []byte, up net.Conn, bytes *budget, verdicts <-chan verdict) bool {
	for {
		if len(head) == 0 {
			if more, err := await(c); err != nil {
				return f.broke(err)
			} else if !more {
				return true
			}
		}
		if <-verdicts != helloAgain {
			return f.send(up, head, bytes)
		}
		hello, ok := f.nextHello(c, head, up, bytes)
		if !ok {
			return false
		}
		if hello == nil { // the client ended the connection
			return true
		}
		end, ok := helloEnd(hello)
		if !ok {
			f.deny("TLS with a second message in the record of the ClientHello")
			c.Write(unrecognizedName)
			return false
		}
		if !f.send(up, hello[:end], bytes) {
			return false
		}
		head = hello[end:]
	}
}

// nextHello reads a ClientHello for the flow's name and returns all the bytes read. It forwards the records
// before it: early data and a ChangeCipherSpec. It returns nil when the client sends no more.
func (f *flow) nextHello(c *net.TCPConn, head []byte, up net.Conn, b *budget) (hello []byte, ok bool) {
	c.SetReadDeadline(time.Now().Add(f.p.Limits.Head))
	defer c.SetReadDeadline(time.Time{})
	before := bytes.NewReader(head)
	from := io.MultiReader(before, c)
	for {
		record := make([]byte, recordHeader)
		if _, err := io.ReadFull(from, record); err == io.EOF {
			return nil, true
		} else if err != nil {
			return nil, f.broke(err)
		}
		size := int(binary.BigEndian.Uint16(record[3:]))
		switch kind := record[0]; {
		case kind == recordHandshake:
			left, _ := io.ReadAll(before) // cannot fail
			return f.checkHello(c, append(record, left...))
		case kind != recordChangeCipherSpec && kind != recordAlert && kind != recordData, size > maxRecord:
			f.deny("TLS without the second ClientHello that the server requested")
			c.Write(unrecognizedName)
			return nil, false
		}
		record = append(record, make([]byte, size)...)
		if _, err := io.ReadFull(from, record[recordHeader:]); err != nil {
			return nil, f.broke(err)
		}
		if !f.send(up, record, b) {
			return nil, false
		}
	}
}

// broke records why a connection ends, and returns false.
func (f *flow) broke(err error) bool {
	f.rec.Error = err.Error()
	return false
}

// send writes bytes from the client to up, as far as the budget allows.
func (f *flow) send(up net.Conn, head []byte, b *budget) bool {
	if len(head) == 0 {
		return true
	}
	n, err := b.pass(up, head)
	f.out.Add(n)
	return err == nil || f.broke(err)
}

// await waits until bytes can be read or the stream ends. It leaves the bytes unread. more is false at the end.
func await(c *net.TCPConn) (more bool, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false, err
	}
	var one [1]byte
	var n int
	var inner error
	err = raw.Read(func(fd uintptr) bool {
		n, _, inner = unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK)
		return inner != unix.EAGAIN && inner != unix.EINTR
	})
	return n > 0, errors.Join(err, inner)
}
