package proxy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"demesne/proxy/redact"
)

// Usage holds the token counts of one response of a language model's HTTP interface.
type Usage struct {
	RequestID     string // the server's, from a header of the response or from its body
	Time          time.Time
	Status        int
	Model         string
	Input         int64 // tokens, without the cache's
	Output        int64
	CacheCreation int64
	CacheRead     int64
	Reasoning     int64 // part of Output

	Cut       bool // the response ended early: the counts are a lower bound
	Missing   bool // a successful response without counts
	Malformed bool // a part that should hold counts could not be parsed, or holds other than counts

	Number    int64  // that the gate gave the request
	Asked     string // the model that the request names
	Sent, Got int64  // bytes of the bodies of the request and of the response
	MaxOutput int64  // the most tokens that the request asks for
	Searches  int64  // of the web, by the provider

	Fault      string        // the message of a 5xx response, without credentials
	RetryAfter time.Duration // in an error: the time until the limit is reset, if the server names it
}

// mostUsage bounds a JSON response or an event that a meter reads, in bytes. mostName bounds a text in a Usage.
const (
	mostUsage = 8 << 20
	mostName  = 200
)

// memory bounds the bytes of requests and responses that all routes of a proxy hold together. A nil memory has no bound.
type memory struct{ used atomic.Int64 }

// mostMemory bounds a memory, in bytes.
const mostMemory = 64 << 20

// take reserves n bytes, or reports that there is no room for them.
func (m *memory) take(n int64) bool {
	if m == nil || m.used.Add(n) <= mostMemory {
		return true
	}
	m.used.Add(-n)
	return false
}

// put returns n bytes.
func (m *memory) put(n int64) {
	if m != nil {
		m.used.Add(-n)
	}
}

// meter reads the token counts of one response, from a copy of its bytes. Its memory is bounded. A nil meter reads
// nothing.
type meter struct {
	format *format
	use    Usage
	record func(Usage) error
	memory *memory
	header http.Header // of the response
	hidden *redact.Values

	length   int64   // of the body, by its header; negative: unknown
	size     int64   // of the body so far
	events   *events // nil: the response is JSON
	text     []byte  // of a JSON response so far
	over     bool    // text would be too long
	found    bool    // there were counts
	included bool    // Input includes CacheRead until the Usage is recorded
	done     bool    // the last event of the format was read
	told     bool    // the Usage was recorded
	asked    bool    // the Usage has what the request says
	lost     error   // from record
}

// of adds what the request says, and its number.
func (m *meter) of(a Asked, number int64) {
	if m != nil {
		m.asked, m.use.Asked, m.use.Sent, m.use.MaxOutput, m.use.Number = true, a.Model, a.Sent, a.MaxOutput, number
	}
}

// meter returns the meter of a response, or nil if the response has no counts.
func (rt *route) meter(memory *memory, method, path string, resp *http.Response) *meter {
	if rt.format == nil || rt.record == nil || !generates(method, path) {
		return nil
	}
	m := &meter{format: rt.format, record: rt.record, memory: memory, header: resp.Header.Clone(), length: resp.ContentLength, use: Usage{Status: resp.StatusCode}}
	if in := rt.insert.Load(); in != nil {
		m.hidden = in.hidden
	}
	for _, name := range []string{"Request-Id", "X-Request-Id"} {
		m.name(&m.use.RequestID, resp.Header.Get(name))
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "text/event-stream" {
		m.events = &events{memory: memory}
	}
	return m
}

// countsOnly reports whether a path names an operation that only counts tokens.
func countsOnly(path string) bool {
	path = strings.ToLower(path)
	return slices.ContainsFunc([]string{"/count_tokens", "/input_tokens", ":counttokens"}, func(end string) bool { return strings.HasSuffix(path, end) })
}

// ok reports whether the server generated something.
func (m *meter) ok() bool { return m.use.Status/100 == 2 }

// write reads the next bytes of the body. It records the Usage at the last event or the last byte: a client that has got
// these has a whole response, and may close the connection.
func (m *meter) write(b []byte) {
	if m == nil || m.told {
		return
	}
	m.size += int64(len(b))
	switch {
	case m.events != nil:
		m.events.write(b, m.event)
		if m.done {
			m.tell(false)
		}
	case m.over:
	case len(m.text)+len(b) > mostUsage || !m.memory.take(int64(len(b))):
		m.memory.put(int64(len(m.text)))
		m.over, m.text = true, nil
	default:
		m.text = append(m.text, b...)
	}
	if m.size == m.length {
		m.end(false)
	}
}

// end records the Usage, unless write did. cut reports that the body ended early. The error is record's.
func (m *meter) end(cut bool) error {
	switch {
	case m == nil:
		return nil
	case m.told:
		return m.lost
	case m.events != nil:
		m.events.end(m.event)
		cut = cut || m.ok() && !m.done && m.format.ends
	case m.over:
		m.use.Malformed = m.ok()
	case m.ok() && !cut:
		m.read(m.text)
	}
	m.tell(cut)
	return m.lost
}

func (m *meter) tell(cut bool) {
	m.told = true
	u := &m.use
	u.Time, u.Cut = time.Now(), cut
	if m.asked {
		u.Got = m.size
	}
	if m.included {
		u.Input = max(0, u.Input-u.CacheRead)
	}
	u.Malformed = u.Malformed || m.events != nil && m.events.lost && !m.found
	none := !m.found || u.Input+u.Output+u.CacheCreation+u.CacheRead == 0
	u.Missing = m.ok() && none && !u.Malformed && !cut
	if u.Status >= http.StatusBadRequest {
		u.RetryAfter = resetIn(m.header, m.text, u.Time)
	}
	if u.Status >= http.StatusInternalServerError {
		said := faultIn(m.text)
		m.name(&u.Fault, m.hidden.Text(said[:min(len(said), 4<<10)]))
	}
	m.lost = m.record(*u)
	m.memory.put(int64(len(m.text)))
	if m.events != nil {
		m.events.release()
	}
	m.text, m.events = nil, nil
}

// faultIn returns the message of an error in the body of a response: the usual fields of JSON, or the text.
func faultIn(body []byte) string {
	var said struct {
		Error   json.RawMessage
		Message string
	}
	var inner struct{ Message string }
	if json.Unmarshal(body, &said) != nil {
		return strings.TrimSpace(string(body))
	}
	json.Unmarshal(said.Error, &inner)
	if inner.Message == "" {
		json.Unmarshal(said.Error, &inner.Message)
	}
	return cmp.Or(inner.Message, said.Message)
}

// event reads the data of one event.
func (m *meter) event(data []byte) {
	if m.format.last != "" && string(data) == m.format.last {
		m.done = true
		return
	}
	if slices.ContainsFunc(m.format.marks, func(mark string) bool { return bytes.Contains(data, []byte(mark)) }) {
		m.read(data)
	}
}

// read reads a JSON text: a whole response, or the data of an event.
func (m *meter) read(text []byte) {
	if m.format.read(m, text) != nil {
		m.use.Malformed = true
	}
}

// name sets an empty text of the Usage.
func (m *meter) name(to *string, s string) {
	if *to == "" {
		*to = strings.ToValidUTF8(s[:min(len(s), mostName)], "")
	}
}

// count is a number of tokens as a server states it: a number of JSON, or a text with one. Anything else is odd.
type count struct {
	n   int64
	odd bool
}

// mostCount bounds a count. A larger one is taken as this.
const mostCount = 1 << 40

// UnmarshalJSON never fails, so that one odd count does not hide the others.
func (c *count) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	var s string
	if json.Unmarshal(text, &s) != nil {
		s = string(text)
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if errors.Is(err, strconv.ErrRange) && n > 0 {
		err = nil
	}
	if c.odd = err != nil || !(n >= 0); !c.odd {
		c.n = int64(math.Ceil(min(n, mostCount)))
	}
	return nil
}

func (c count) plus(d count) count { return count{c.n + d.n, c.odd || d.odd} }

// tokens are counts as a format gives them. Later ones of the same response are at least as large.
type tokens struct{ input, output, creation, cached, reasoning count }

var errOdd = errors.New("a count is not a number of tokens")

// count takes over counts. cached tokens are part of input if included is set.
func (m *meter) count(t tokens, included bool) error {
	m.included = included
	u := &m.use
	u.Input, u.Output, u.Reasoning = max(u.Input, t.input.n), max(u.Output, t.output.n), max(u.Reasoning, t.reasoning.n)
	u.CacheCreation, u.CacheRead = max(u.CacheCreation, t.creation.n), max(u.CacheRead, t.cached.n)
	m.found = true
	if t.input.odd || t.output.odd || t.creation.odd || t.cached.odd || t.reasoning.odd {
		return errOdd
	}
	return nil
}

// parse decodes JSON and ignores fields of T that are missing.
func parse[T any](text []byte) (v T, err error) {
	err = json.Unmarshal(text, &v)
	return v, err
}
