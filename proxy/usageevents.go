package proxy

import "bytes"

// events splits a stream of server-sent events, however its bytes arrive. An event that is longer than mostUsage, or
// than the memory that is left, is dropped.
type events struct {
	memory *memory
	held   int64  // bytes of memory in use, for the event so far
	line   []byte // the line that has not ended yet
	data   []byte // the data lines of the event so far, joined
	some   bool   // the event has a data line
	feed   bool   // the last byte was a carriage return: a line feed belongs to it
	past   bool   // the first line was read
	drop   bool   // the event is too long
	lost   bool   // an event was too long
	inDrop bool   // the line is too long
}

// write calls event with the data of each event that ends in b.
func (s *events) write(b []byte, event func([]byte)) {
	for len(b) > 0 {
		if s.feed {
			if s.feed = false; b[0] == '\n' {
				b = b[1:]
				continue
			}
		}
		i := bytes.IndexAny(b, "\r\n")
		if i < 0 {
			s.append(b)
			return
		}
		s.append(b[:i])
		s.feed = b[i] == '\r'
		b = b[i+1:]
		s.ended(event)
	}
}

// append adds to the current line.
func (s *events) append(b []byte) {
	if s.drop = s.drop || s.held+int64(len(b)) > mostUsage || !s.memory.take(int64(len(b))); s.drop {
		s.release()
		s.lost, s.line, s.data = true, nil, nil
		s.inDrop = s.inDrop || len(b) > 0
		return
	}
	s.held += int64(len(b))
	s.line = append(s.line, b...)
}

// release returns the memory of the event.
func (s *events) release() {
	s.memory.put(s.held)
	s.held = 0
}

// ended handles the end of a line.
func (s *events) ended(event func([]byte)) {
	line := s.line
	if !s.past {
		line, s.past = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")), true
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	switch {
	case s.inDrop:
	case len(line) == 0:
		s.dispatch(event)
	case string(name) == "data":
		if s.some {
			s.data = append(s.data, '\n')
		}
		s.data, s.some = append(s.data, bytes.TrimPrefix(value, []byte(" "))...), true
	}
	s.line, s.inDrop = s.line[:0], false
}

// dispatch ends an event.
func (s *events) dispatch(event func([]byte)) {
	if s.some && !s.drop {
		event(s.data)
	}
	s.release()
	s.data, s.some, s.drop = s.data[:0], false, false
	if cap(s.data) > keptData {
		s.data, s.line = nil, nil
	}
}

// keptData is the size of a buffer that is used again for the next event, in bytes.
const keptData = 64 << 10

// end handles the end of the stream. Its last event may lack the empty line.
func (s *events) end(event func([]byte)) {
	if len(s.line) > 0 {
		s.ended(event)
	}
	s.dispatch(event)
}
