package kernels

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// protocolVersion is the version of the messaging protocol that clients announce.
const protocolVersion = "5.4"

// Header identifies a message (Jupyter messaging, "General Message Format").
type Header struct {
	ID       string `json:"msg_id"`
	Session  string `json:"session"`
	Username string `json:"username"`
	Date     string `json:"date"`
	Type     string `json:"msg_type"`
	Version  string `json:"version"`
}

// Message is one message of a kernel or to it. What a kernel sends is untrusted: only its size is checked.
type Message struct {
	Header   Header          `json:"header"`
	Parent   Header          `json:"parent_header"` // of the request that this message answers; may be zero
	Metadata json.RawMessage `json:"metadata"`
	Content  json.RawMessage `json:"content"`
	Buffers  [][]byte        `json:"-"` // raw data of widgets; a line has none
}

// newMessage returns a request. content must be encodable.
func newMessage(session, typ string, content any) (*Message, error) {
	text, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", typ, err)
	}
	h := Header{
		ID: rand.Text(), Session: session, Username: "demesne", Type: typ, Version: protocolVersion,
		Date: time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"),
	}
	return &Message{Header: h, Metadata: json.RawMessage("{}"), Content: text}, nil
}

// delimiter separates a message's routing prefix from its frames.
var delimiter = []byte("<IDS|MSG>")

// errMessage is the cause of every error of a message that does not have the protocol's form.
var errMessage = errors.New("not a message of Jupyter's protocol")

// frames returns the wire form of m, signed with key.
func (m *Message) frames(key []byte) ([][]byte, error) {
	header, err1 := json.Marshal(m.Header)
	parent := []byte("{}")
	var err2 error
	if m.Parent.ID != "" {
		parent, err2 = json.Marshal(m.Parent)
	}
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.Header.Type, err)
	}
	parts := [][]byte{header, parent, m.Metadata, m.Content}
	return slices.Concat([][]byte{delimiter, sign(key, parts)}, parts, m.Buffers), nil
}

// parseFrames reads the wire form of a message and checks its signature. It ignores the routing prefix.
func parseFrames(frames [][]byte, key []byte) (*Message, error) {
	for len(frames) > 0 && !bytes.Equal(frames[0], delimiter) {
		frames = frames[1:]
	}
	if len(frames) < 6 {
		return nil, errMessage
	}
	signature, parts := frames[1], frames[2:6]
	if !hmac.Equal(signature, sign(key, parts)) {
		return nil, fmt.Errorf("%w: wrong signature", errMessage)
	}
	m := &Message{Metadata: parts[2], Content: parts[3], Buffers: frames[6:]}
	err1, err2 := json.Unmarshal(parts[0], &m.Header), json.Unmarshal(parts[1], &m.Parent)
	if errors.Join(err1, err2) != nil || !json.Valid(m.Content) || !json.Valid(m.Metadata) {
		return nil, errMessage
	}
	return m, nil
}

// sign returns the signature in hexadecimal digits, or nothing if the connection has no key.
func sign(key []byte, parts [][]byte) []byte {
	if len(key) == 0 {
		return []byte{}
	}
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		h.Write(p)
	}
	return hex.AppendEncode(nil, h.Sum(nil))
}
