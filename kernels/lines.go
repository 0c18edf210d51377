package kernels

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"demesne/internal/fsutil"
)

// lines is the channel of one of demesne's own kernels (package driver): requests and answers are lines of JSON, and
// stdout and stderr are what the code writes, in any form. It makes stream messages of these.
//
// A kernel marks a place in its outputs: it writes the mark with a number to stdout and stderr, and then sends a message
// with that number in its metadata. The message arrives after the outputs before the mark, and before those after it.
// Code may forge marks. That only confuses its own outputs: a wait for a mark ends when no output has moved for markWait,
// and at the latest after maxWaits of these. What an output delivers after such a wait is not a move, so that many forged
// marks do not prolong the wait for a message.
type lines struct {
	requests, answers *os.File
	in                *bufio.Reader // answers
	mark              []byte
	said              func([]byte) // takes what is written before the first request
	wait              time.Duration

	merged chan received
	over   chan struct{}
	once   sync.Once
	sends  sync.Mutex

	mu        sync.Mutex
	change    *sync.Cond // seen, delivered or pumps has changed
	parent    Header     // of the request that the outputs belong to
	seen      [2]uint64  // the last mark in each output
	delivered uint64     // the last mark whose message has been delivered
	pumps     [2]bool    // the outputs that have not ended
	late      [2]bool    // the outputs that did not wait for the message of their last mark: it may be forged
	moved     uint64     // pieces of output that have been delivered, without late outputs' pieces
}

type received struct {
	m   *Message
	err error
}

const (
	markWait   = 2 * time.Second
	maxWaits   = 15
	markDigits = 8 // hexadecimal digits of a mark's number
	maxPiece   = 64 << 10
)

// mark returns the mark that a kernel makes from its key. The mark is not text, so that code which prints
// the kernel's arguments does not print it.
func mark(key string) []byte { return []byte("\x00\x01" + key + "\x02") }

func newLines(requests, answers *os.File, mark []byte, outputs [2]*os.File, said func([]byte), wait time.Duration) *lines {
	c := &lines{
		requests: requests, answers: answers, in: bufio.NewReaderSize(answers, 64<<10), mark: mark, said: said, wait: wait,
		merged: make(chan received), over: make(chan struct{}), pumps: [2]bool{true, true},
	}
	c.change = sync.NewCond(&c.mu)
	for i, name := range []string{"stdout", "stderr"} {
		go c.pump(i, name, outputs[i])
	}
	go c.receive()
	return c
}

func (c *lines) Send(m *Message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", m.Header.Type, err)
	}
	c.sends.Lock()
	defer c.sends.Unlock()
	if _, err := c.requests.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("send to kernel: %w", err)
	}
	return nil
}

func (c *lines) Receive() (*Message, error) {
	select {
	case r := <-c.merged:
		return r.m, r.err
	case <-c.over:
		return nil, io.EOF
	}
}

func (c *lines) Close() error {
	c.once.Do(func() {
		close(c.over)
		c.mu.Lock()
		c.change.Broadcast()
		c.mu.Unlock()
	})
	return errors.Join(c.requests.Close(), c.answers.Close())
}

// current returns the id of the request that the kernel is at.
func (c *lines) current() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parent.ID
}

// deliver hands a message to Receive. It reports whether there still is a receiver.
func (c *lines) deliver(m *Message, err error) bool {
	select {
	case c.merged <- received{m, err}:
		return true
	case <-c.over:
		return false
	}
}

// receive delivers the kernel's messages.
func (c *lines) receive() {
	for {
		m, err := c.next()
		if err != nil {
			c.await(func() bool { return !c.pumps[0] && !c.pumps[1] }, c.wait)
			c.deliver(nil, err)
			return
		}
		var place struct {
			Mark    uint64 `json:"mark"`
			Streams int    `json:"streams"` // those that have the mark: 1 for stdout, 2 for stderr
		}
		json.Unmarshal(m.Metadata, &place)
		c.await(func() bool {
			for i := range c.seen {
				if place.Streams&(1<<i) != 0 && c.pumps[i] && c.seen[i] < place.Mark {
					return false
				}
			}
			return true
		}, c.wait)
		if !c.deliver(m, nil) {
			return
		}
		c.mu.Lock()
		if m.Parent.ID != "" {
			c.parent = m.Parent
		}
		c.delivered = max(c.delivered, place.Mark)
		c.change.Broadcast()
		c.mu.Unlock()
	}
}

// await waits until is reports true, the channel is closed, or no output has moved for a time, which it reports as late.
// is runs with c.mu held.
func (c *lines) await(is func() bool, still time.Duration) (late bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if is() {
		return false
	}
	waits, moved := 0, c.moved
	var t *time.Timer
	t = time.AfterFunc(still, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if waits++; c.moved != moved && waits < maxWaits {
			moved = c.moved
			t.Reset(still)
			return
		}
		late = true
		c.change.Broadcast()
	})
	defer t.Stop()
	for !is() && !late {
		select {
		case <-c.over:
			return late
		default:
		}
		c.change.Wait()
	}
	return late
}

// next reads a message.
func (c *lines) next() (*Message, error) {
	line, err := c.line()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, os.ErrClosed):
		return nil, io.EOF
	case err != nil:
		return nil, fmt.Errorf("receive from kernel: %w", err)
	}
	m := &Message{}
	if err := json.Unmarshal(line, m); err != nil {
		return nil, errMessage
	}
	return m, nil
}

// line reads a line of at most maxFrame bytes.
func (c *lines) line() (line []byte, err error) {
	for {
		part, err := c.in.ReadSlice('\n')
		if len(line)+len(part) > maxFrame {
			return nil, ErrTooLarge
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// pump delivers what the code writes to an output.
func (c *lines) pump(i int, name string, f *os.File) {
	defer func() {
		f.Close()
		c.said(nil)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pumps[i] = false
		c.change.Broadcast()
	}()
	b, kept, from := make([]byte, maxPiece), 0, fsutil.Rest(f)
	for {
		n, err := from.Read(b[kept:])
		rest := b[:kept+n]
		for {
			text, number, after, found := c.cut(rest)
			if !found {
				break
			}
			if !c.emit(i, name, text) {
				return
			}
			rest = after
			c.passed(i, number)
		}
		hold := c.hold(rest)
		if err != nil {
			hold = 0
		}
		if !c.emit(i, name, rest[:len(rest)-hold]) || err != nil {
			return
		}
		kept = copy(b, rest[len(rest)-hold:])
	}
}

// cut finds the first mark in b, and returns what precedes it, its number, and what follows.
func (c *lines) cut(b []byte) (before []byte, number uint64, after []byte, found bool) {
	before, after, found = bytes.Cut(b, c.mark)
	if !found || len(after) < markDigits {
		return b, 0, nil, false
	}
	number, err := strconv.ParseUint(string(after[:markDigits]), 16, 64)
	if err != nil {
		number = 0
	}
	return before, number, after[markDigits:], true
}

// hold returns how many bytes at the end of b may be the beginning of a mark or of a character.
func (c *lines) hold(b []byte) int {
	for i := max(0, len(b)-len(c.mark)-markDigits+1); i < len(b); i++ {
		if t := b[i:]; bytes.HasPrefix(c.mark, t) || bytes.HasPrefix(t, c.mark) {
			return len(t)
		}
	}
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if t := b[len(b)-n:]; utf8.RuneStart(t[0]) {
			if utf8.FullRune(t) {
				return 0
			}
			return n
		}
	}
	return 0
}

// passed waits until the message of a mark has been delivered.
func (c *lines) passed(i int, number uint64) {
	c.mu.Lock()
	c.seen[i] = max(c.seen[i], number)
	c.change.Broadcast()
	c.mu.Unlock()
	late := c.await(func() bool { return c.delivered >= number }, c.wait)
	c.mu.Lock()
	c.late[i] = late
	c.mu.Unlock()
}

// emit delivers a text of the code. It reports whether there still is a receiver.
func (c *lines) emit(i int, name string, b []byte) bool {
	if len(b) == 0 {
		return true
	}
	c.mu.Lock()
	parent := c.parent
	c.mu.Unlock()
	if parent.ID == "" {
		c.said(b)
		return true
	}
	text, err := json.Marshal(map[string]string{"name": name, "text": string(b)})
	if err != nil {
		return true
	}
	if !c.deliver(&Message{Header: Header{Type: "stream", Version: protocolVersion}, Parent: parent, Content: text}, nil) {
		return false
	}
	c.mu.Lock()
	if !c.late[i] {
		c.moved++
	}
	c.mu.Unlock()
	return true
}
