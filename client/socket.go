package client

import (
	"bufio"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// socket is the client's end of a WebSocket (RFC 6455), without extensions. One goroutine may read while others write.
type socket struct {
	io.Closer
	r *bufio.Reader

	mu sync.Mutex
	w  io.Writer
}

func newSocket(conn io.ReadWriteCloser) *socket {
	return &socket{Closer: conn, r: bufio.NewReaderSize(conn, 32<<10), w: conn}
}

// socketKey returns a random key, and the server's answer to it.
func socketKey() (key, accept string) {
	var b [16]byte
	rand.Read(b[:])
	key = base64.StdEncoding.EncodeToString(b[:])
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return key, base64.StdEncoding.EncodeToString(sum[:])
}

// Kinds of frames.
const (
	frameMore   = 0
	frameText   = 1
	frameBinary = 2
	frameClose  = 8
	framePing   = 9
	framePong   = 10
)

// Bits of a frame's header.
const (
	frameLast   = 0x80
	frameMasked = 0x80
)

// maxMessage bounds a message that is read, and maxControl a frame that controls the connection, in bytes.
const (
	maxMessage = 16 << 20
	maxControl = 125
)

// read returns the next message, text or binary. It answers pings. The server's close is io.EOF.
func (s *socket) read() (kind byte, message []byte, err error) {
	for {
		op, last, payload, err := s.frame(maxMessage - len(message))
		if err != nil {
			return 0, nil, err
		}
		switch op {
		case frameClose:
			return 0, nil, io.EOF
		case framePing:
			if err := s.write(framePong, payload); err != nil {
				return 0, nil, err
			}
			continue
		case framePong:
			continue
		case frameMore:
			if kind == 0 {
				return 0, nil, errFrame
			}
		case frameText, frameBinary:
			if kind != 0 {
				return 0, nil, errFrame
			}
			kind = op
		default:
			return 0, nil, errFrame
		}
		if message = append(message, payload...); last {
			return kind, message, nil
		}
	}
}

var errFrame = errors.New("not a WebSocket frame")

// frame reads one frame, whose payload has at most limit bytes.
func (s *socket) frame(limit int) (op byte, last bool, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(s.r, head[:]); err != nil {
		return 0, false, nil, err
	}
	op, last = head[0]&0x0f, head[0]&frameLast != 0
	if head[0]&0x70 != 0 || head[1]&frameMasked != 0 { // an extension, or a client's frame
		return 0, false, nil, errFrame
	}
	n := uint64(head[1])
	if wide := map[uint64]int{126: 2, 127: 8}[n]; wide > 0 {
		var b [8]byte
		if _, err := io.ReadFull(s.r, b[8-wide:]); err != nil {
			return 0, false, nil, err
		}
		n = binary.BigEndian.Uint64(b[:])
	}
	if op >= frameClose && (n > maxControl || !last) {
		return 0, false, nil, errFrame
	}
	if n > uint64(max(limit, 0)) {
		return 0, false, nil, fmt.Errorf("%w: %d bytes in a message", ErrTooLarge, maxMessage)
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(s.r, payload)
	return op, last, payload, err
}

// write sends one message as one frame.
func (s *socket) write(kind byte, payload []byte) error {
	b := []byte{frameLast | kind, frameMasked}
	switch n := len(payload); {
	case n <= 125:
		b[1] |= byte(n)
	case n <= 0xffff:
		b[1] |= 126
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	default:
		b[1] |= 127
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	var mask [4]byte
	rand.Read(mask[:])
	b = append(b, mask[:]...)
	for i, c := range payload {
		b = append(b, c^mask[i%4])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.w.Write(b)
	return err
}
