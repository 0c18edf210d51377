// Package filter passes messages between an MCP client and a server that runs in a sandbox, and drops what would make the
// client act for the server.
//
// A [Wire] replaces the streams of the server. A client's requests pass unchanged. From the server only answers, pings and
// notifications pass: its own requests (to ask the user, to use the client's model, to list directories) are answered with an
// error, unless they were allowed. Each message is parsed and encoded again, so that filter and client read the same fields. A
// line that is not a message of JSON-RPC is dropped. The package links no MCP library, because demesne run pays for it.
package filter

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"

	"demesne/internal/text"
)

// Bounds of the messages of a wrapped server.
const (
	maxServerMessage = 64 << 20 // bytes of one line
	maxRefusals      = 64       // answers that wait until the server reads
)

// Codes of JSON-RPC and MCP.
const (
	codeNoMethod  = -32601
	codeInternal  = -32603
	codeNeedsPage = -32042 // the client is asked to open an address
)

// Message is a message of JSON-RPC. It has the fields that a receiver obeys, and the receiver gets its encoding: a field
// that occurs twice, or in another spelling, means the same to the filter and to the receiver.
type Message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// rpcError is the error of a message.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// wireVerdict says what to do with a line of a wrapped server. Each part may be empty.
type wireVerdict struct {
	pass   []byte   // for the client
	answer [][]byte // for the server, in place of the client's
	why    []string // reasons for what was dropped
}

var errNotRPC = errors.New("a line that is not JSON-RPC")

// judge decides about a line of a wrapped server. Requests are the server's own requests to the client: to ask the user,
// to use the client's model, or to list its directories. Without requests only ping passes.
func judge(line []byte, requests bool) (v wireVerdict) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return v
	}
	var batch []json.RawMessage
	if line[0] != '[' {
		batch = []json.RawMessage{line}
	} else if json.Unmarshal(line, &batch) != nil || len(batch) == 0 {
		batch = []json.RawMessage{nil}
	}
	var passed []string
	for _, raw := range batch {
		m, err := Parse(raw)
		if err != nil {
			v.why = append(v.why, err.Error())
			continue
		}
		m, refusal, why := m.judge(requests)
		if m != nil {
			passed = append(passed, m.Encode())
		}
		if refusal != nil {
			v.answer = append(v.answer, []byte(refusal.Encode()+"\n"))
		}
		if why != "" {
			v.why = append(v.why, why)
		}
	}
	switch all := strings.Join(passed, ","); {
	case all == "":
	case line[0] == '[':
		v.pass = []byte("[" + all + "]\n")
	default:
		v.pass = []byte(all + "\n")
	}
	return v
}

// Parse parses a message. Names of fields are compared exactly, which encoding/json does only for maps.
func Parse(raw []byte) (*Message, error) {
	var f map[string]json.RawMessage
	if json.Unmarshal(raw, &f) != nil || f == nil {
		return nil, errNotRPC
	}
	m := &Message{ID: f["id"], Params: f["params"], Result: f["result"], Error: f["error"]}
	if json.Unmarshal(f["jsonrpc"], &m.Version) != nil || m.Version != "2.0" {
		return nil, errNotRPC
	}
	_, called := f["method"]
	if called && (json.Unmarshal(f["method"], &m.Method) != nil || m.Method == "") {
		return nil, errNotRPC
	}
	if len(m.ID) > 0 && !strings.ContainsRune(`"-0123456789n`, rune(m.ID[0])) {
		return nil, errNotRPC
	}
	if answers := (m.Result != nil) != (m.Error != nil); called == answers || !called && m.ID == nil || called && (m.Result != nil || m.Error != nil) {
		return nil, errNotRPC
	}
	return m, nil
}

// Encode returns a message as one line, without raw characters that a terminal obeys.
func (m *Message) Encode() string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(m) // its parts are valid JSON
	return text.SafeJSON(strings.ToValidUTF8(strings.TrimSuffix(b.String(), "\n"), "\ufffd"))
}

// judge returns the message for the client, or an answer for the server, and the reason of a refusal.
func (m *Message) judge(requests bool) (pass, refusal *Message, why string) {
	switch {
	case m.Method == "":
		return m.judgeAnswer(requests)
	case m.ID != nil && (requests || m.Method == "ping"):
		return m, nil, ""
	case m.ID != nil:
		return nil, Failure(m.ID, codeNoMethod, "the client takes no such request"), "request " + m.Method + ": --allow-requests passes the server's own requests"
	case strings.HasPrefix(m.Method, "notifications/") && (requests || !asksInput(m.Params)):
		return m, nil, ""
	}
	return nil, nil, "notification " + m.Method
}

// judgeAnswer refuses an answer that asks the client for something: from protocol 2026-07-28 on, the requests of a server
// are in its results, and an error can name an address to open.
func (m *Message) judgeAnswer(requests bool) (pass, refusal *Message, why string) {
	var fault map[string]json.RawMessage
	json.Unmarshal(m.Error, &fault)
	needsPage := false
	for name, value := range fault {
		var code float64
		needsPage = needsPage || strings.EqualFold(name, "code") && json.Unmarshal(value, &code) == nil && code == codeNeedsPage
	}
	if requests || !needsPage && !asksInput(m.Result) {
		return m, nil, ""
	}
	return Failure(m.ID, codeInternal, "the server asked for input, which this client does not give"), nil,
		"a result that asks for input: --allow-requests passes the server's own requests"
}

// asksInput reports whether an object has requests for the client.
func asksInput(raw json.RawMessage) bool {
	var all map[string]json.RawMessage
	json.Unmarshal(raw, &all)
	for name := range all {
		if strings.EqualFold(name, "inputRequests") {
			return true
		}
	}
	return false
}

// Failure returns the answer with an error to the request of that id.
func Failure(id json.RawMessage, code int, message string) *Message {
	raw, _ := json.Marshal(rpcError{code, message}) // never fails
	return &Message{Version: "2.0", ID: id, Error: raw}
}

// Wire passes messages between a client and the server that it wraps. It replaces the caller's stdin and stdout.
type Wire struct {
	Stdin, Stdout *os.File // for the server
	requests      bool
	say           func(string)

	lines   chan []byte // of the client; closed at their end
	answers chan []byte
	done    chan struct{} // closed when all that the server wrote was passed
	said    map[string]bool
}

// New returns a wire between the streams of a client and a server. say reports what was dropped.
func New(stdin, stdout *os.File, say func(string), requests bool) (*Wire, error) {
	fromClient, toServer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	fromServer, toClient, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, fromClient.Close(), toServer.Close())
	}
	w := &Wire{
		Stdin: fromClient, Stdout: toClient, requests: requests, say: say,
		lines: make(chan []byte), answers: make(chan []byte, maxRefusals), done: make(chan struct{}), said: map[string]bool{},
	}
	go w.read(stdin)
	go w.send(toServer)
	go w.filter(fromServer, stdout)
	return w, nil
}

// Close waits until the client has all that the server wrote. It must be called after the server's end.
func (w *Wire) Close() {
	w.Stdout.Close()
	<-w.done
}

// read reads the lines of the client.
func (w *Wire) read(from io.Reader) {
	defer close(w.lines)
	r := bufio.NewReader(from)
	for {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			w.lines <- line
		}
		if err != nil {
			return
		}
	}
}

// send writes lines of the client to the server, and refusals between them.
func (w *Wire) send(to io.WriteCloser) {
	defer to.Close()
	for {
		var line []byte
		more := true
		select {
		case line, more = <-w.lines:
		case line = <-w.answers:
		}
		if !more {
			return
		}
		if _, err := to.Write(line); err != nil {
			for range w.lines { // the server has ended
			}
			return
		}
	}
}

// filter passes lines of the server on to the client. After an error of the client the server gets one too.
func (w *Wire) filter(from io.ReadCloser, to io.Writer) {
	defer close(w.done)
	defer from.Close()
	r := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := readServerLine(r)
		v := wireVerdict{why: []string{"a line that is too large"}}
		if line != nil {
			v = judge(line, w.requests)
		}
		for _, why := range v.why {
			w.tell(why)
		}
		for _, a := range v.answer {
			select {
			case w.answers <- a:
			default: // a server that reads no answers
			}
		}
		if len(v.pass) > 0 {
			if _, werr := to.Write(v.pass); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// tell reports why something was dropped, once for each reason.
func (w *Wire) tell(why string) {
	if why = text.SafeLine(why); !w.said[why] && len(w.said) < maxRefusals {
		w.said[why] = true
		w.say("mcp wrap: dropped " + why)
	}
}

// readServerLine reads one line. It returns nil for one that is too large, which it skips.
func readServerLine(r *bufio.Reader) (line []byte, err error) {
	line = []byte{}
	for {
		part, err := r.ReadSlice('\n')
		if line != nil {
			line = append(line, part...)
		}
		if len(line) > maxServerMessage {
			line = nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}
