package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxMessage is the maximum size of a client's message in bytes. An inline upload fits.
const maxMessage = 64 << 20

// frames is a connection over two streams. It reads consecutive JSON values in any layout, and
// writes one message per line. It answers an invalid message with an error, skips the rest of its
// line and reads on. The SDK's own connection would end. Protocols before 2025-06-18 have
// batches, whose messages are answered one by one.
type frames struct {
	in    io.ReadCloser
	from  source        // reads in
	dec   *json.Decoder // decodes from
	queue []jsonrpc.Message
	most  int // maximum bytes of a message

	mu  sync.Mutex
	out io.WriteCloser
}

func newFrames(in io.ReadCloser, out io.WriteCloser) *frames {
	f := &frames{in: in, out: out, from: source{r: in}, most: maxMessage}
	f.dec = json.NewDecoder(&f.from)
	return f
}

// Connect returns f itself.
func (f *frames) Connect(context.Context) (sdk.Connection, error) { return f, nil }

// SessionID returns "": there is only one session.
func (f *frames) SessionID() string { return "" }

// Close closes both streams.
func (f *frames) Close() error { return errors.Join(f.in.Close(), f.out.Close()) }

// Read returns the next message, or io.EOF. It ignores ctx: see drainingConn.pump.
func (f *frames) Read(context.Context) (jsonrpc.Message, error) {
	for len(f.queue) == 0 {
		var raw json.RawMessage
		f.from.left = f.most
		err := f.dec.Decode(&raw)
		var wrong *json.SyntaxError
		switch {
		case err == nil:
			if f.queue, err = messages(raw); err != nil {
				f.refuse(jsonrpc.CodeInvalidRequest, err)
			}
		case errors.As(err, &wrong):
			f.refuse(jsonrpc.CodeParseError, err)
			f.skip(wrong.Offset - f.dec.InputOffset())
		case errors.Is(err, errLong):
			f.refuse(jsonrpc.CodeInvalidRequest, fmt.Errorf("%w: over %d bytes", err, f.most))
			f.skip(int64(f.most))
		case errors.Is(err, io.ErrUnexpectedEOF):
			f.refuse(jsonrpc.CodeParseError, err)
			return nil, io.EOF
		default:
			return nil, err
		}
	}
	m := f.queue[0]
	f.queue = f.queue[1:]
	return m, nil
}

// skip skips the rest of the line at byte n of the last frame, and restarts the decoder behind
// it.
func (f *frames) skip(n int64) {
	had, _ := io.ReadAll(f.dec.Buffered()) // from the start of the frame
	f.from.unread(had[min(max(n-1, 0), int64(len(had))):])
	f.from.skipLine()
	f.dec = json.NewDecoder(&f.from)
}

// messages returns the messages in one JSON value.
func messages(raw json.RawMessage) (all []jsonrpc.Message, err error) {
	parts := []json.RawMessage{raw}
	if raw[0] == '[' {
		if err := json.Unmarshal(raw, &parts); err != nil {
			return nil, err
		}
		if len(parts) == 0 {
			return nil, errors.New("empty batch")
		}
	}
	for _, part := range parts {
		if part[0] != '{' {
			return nil, errors.New("message is not an object")
		}
		m, err := jsonrpc.DecodeMessage(part)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// refuse sends an error response without an id, because the invalid message has none.
func (f *frames) refuse(code int64, err error) {
	b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil, "error": jsonrpc.Error{Code: code, Message: err.Error()}})
	f.write(b)
}

// Write writes one message.
func (f *frames) Write(_ context.Context, m jsonrpc.Message) error {
	b, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	return f.write(b)
}

func (f *frames) write(b []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.out.Write(append(b, '\n'))
	return err
}

var errLong = errors.New("the message is too long")

// source reads at most left bytes of r. Bytes can be put back with unread.
type source struct {
	r    io.Reader
	left int
	back []byte // bytes put back; nil: the last read came from r
	pos  int
}

func (s *source) Read(p []byte) (n int, err error) {
	if s.left == 0 {
		return 0, errLong
	}
	p = p[:min(len(p), s.left)]
	if s.pos < len(s.back) {
		n = copy(p, s.back[s.pos:])
		s.pos += n
	} else {
		s.back, s.pos = nil, 0
		n, err = s.r.Read(p)
	}
	s.left -= n
	return n, err
}

// unread puts back b, which must be the bytes read last. It copies at most b, and nothing if back
// still contains them. A client that sends only errors is therefore served in linear time.
func (s *source) unread(b []byte) {
	if s.pos >= len(b) {
		s.pos -= len(b)
		return
	}
	s.back, s.pos = bytes.Clone(b), 0
}

// skipLine skips to the end of the line; the next read starts at the newline.
func (s *source) skipLine() {
	var buf [4096]byte
	for {
		s.left = len(buf)
		n, err := s.Read(buf[:])
		if end := bytes.IndexByte(buf[:n], '\n'); end >= 0 {
			s.unread(buf[end:n])
			return
		}
		if err != nil {
			return // the next read returns it again
		}
	}
}
