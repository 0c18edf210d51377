package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
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
				f.refuse(nil, jsonrpc.CodeInvalidRequest, err)
			}
		case errors.As(err, &wrong):
			f.refuse(nil, jsonrpc.CodeParseError, err)
			f.skip(wrong.Offset-f.dec.InputOffset(), nil)
		case errors.Is(err, errLong):
			var id idScanner
			f.skip(int64(f.most), &id)
			f.refuse(id.found, jsonrpc.CodeInvalidRequest, fmt.Errorf("%w: over %d bytes", err, f.most))
		case errors.Is(err, io.ErrUnexpectedEOF):
			f.refuse(nil, jsonrpc.CodeParseError, err)
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
// it. id, if not nil, sees the frame to the end of the line.
func (f *frames) skip(n int64, id *idScanner) {
	had, _ := io.ReadAll(f.dec.Buffered()) // from the start of the frame
	at := min(max(n-1, 0), int64(len(had)))
	id.scan(had[:at])
	f.from.unread(had[at:])
	f.from.skipLine(id)
	f.dec = json.NewDecoder(&f.from)
}

// maxBatch is the maximum number of messages in a batch.
const maxBatch = 1000

// messages returns the messages in one JSON value.
func messages(raw json.RawMessage) (all []jsonrpc.Message, err error) {
	parts := []json.RawMessage{raw}
	if raw[0] == '[' {
		if parts, err = batch(raw); err != nil {
			return nil, err
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

// batch returns the elements of an array. It reads no more of them than are allowed, because short elements take many
// times their size.
func batch(raw json.RawMessage) (parts []json.RawMessage, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.Token() // the bracket
	for d.More() {
		if len(parts) == maxBatch {
			return nil, fmt.Errorf("batch of over %d messages", maxBatch)
		}
		var part json.RawMessage
		if err := d.Decode(&part); err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return nil, errors.New("empty batch")
	}
	return parts, nil
}

// refuse sends an error response. id is nil if the id of the invalid message is unknown.
func (f *frames) refuse(id json.RawMessage, code int64, err error) {
	b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": jsonrpc.Error{Code: code, Message: err.Error()}})
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

// skipLine skips to the end of the line; the next read starts at the newline. id sees what is skipped.
func (s *source) skipLine(id *idScanner) {
	var buf [4096]byte
	for {
		s.left = len(buf)
		n, err := s.Read(buf[:])
		if end := bytes.IndexByte(buf[:n], '\n'); end >= 0 {
			id.scan(buf[:end])
			s.unread(buf[end:n])
			return
		}
		id.scan(buf[:n])
		if err != nil {
			return // the next read returns it again
		}
	}
}

// idScanner finds the id of a message that is too long to be kept. Many clients write the id behind the parameters.
// A nil idScanner ignores what it scans.
type idScanner struct {
	found json.RawMessage // a string or a number; nil: none

	depth           int    // of objects and arrays
	quoted, escaped bool   // in a string, and behind a backslash in it
	text            []byte // start of the current member of the outer object
	done            bool   // the first member "id" is read
}

// longestID is the maximum size of a member "id", in bytes.
const longestID = 256

// scan continues with the next bytes of the message.
func (s *idScanner) scan(b []byte) {
	if s == nil {
		return
	}
	for _, c := range b {
		if s.done {
			return
		}
		s.next(c)
		if s.depth > 0 && len(s.text) <= longestID {
			s.text = append(s.text, c)
		}
	}
}

// next tracks where in the message c is. The text of a member starts with the comma or brace before it.
func (s *idScanner) next(c byte) {
	switch {
	case s.escaped:
		s.escaped = false
	case s.quoted:
		s.escaped, s.quoted = c == '\\', c != '"'
	case c == '"':
		s.quoted = true
	case c == '{' || c == '[':
		if s.depth++; s.depth == 1 {
			s.text = s.text[:0]
		}
	case c == '}' || c == ']':
		if s.depth == 1 {
			s.member()
		}
		s.depth--
	case c == ',' && s.depth == 1:
		s.member()
	}
}

// member reads the member that is complete.
func (s *idScanner) member() {
	text := s.text
	s.text = s.text[:0]
	if len(text) > longestID || len(text) == 0 {
		return
	}
	if text = bytes.TrimSpace(text[1:]); !bytes.HasPrefix(text, []byte(`"id"`)) {
		return
	}
	s.done = true
	var m map[string]json.RawMessage
	if json.Unmarshal(slices.Concat([]byte("{"), text, []byte("}")), &m) != nil {
		return
	}
	if id := m["id"]; len(id) > 0 && (id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9') {
		s.found = id
	}
}
