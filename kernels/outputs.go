package kernels

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"demesne/internal/text"
)

// Bounds of what a [Result] keeps. They are the bounds of the results, not of what a kernel may write.
const (
	MaxStream   = 1 << 20  // bytes kept of each of stdout and stderr: the last ones
	MaxDisplays = 200      // outputs with MIME types
	maxBundles  = 32 << 20 // bytes of all of these
	maxError    = 64 << 10 // bytes of an error's texts
)

// Bundle is one value in several representations, by MIME type. A text is a JSON string; binary data is a JSON string in
// base64; other values are JSON. It comes from a kernel and is untrusted.
type Bundle map[string]json.RawMessage

// Text returns the representation of a MIME type as text. It also joins a list of lines, which notebooks have.
func (b Bundle) Text(mime string) (string, bool) {
	var one string
	if json.Unmarshal(b[mime], &one) == nil && len(b[mime]) > 0 {
		return one, true
	}
	var lines []string
	if json.Unmarshal(b[mime], &lines) == nil && lines != nil {
		return strings.Join(lines, ""), true
	}
	return "", false
}

// Bytes returns the decoded representation of a binary MIME type, such as image/png.
func (b Bundle) Bytes(mime string) ([]byte, error) {
	one, ok := b.Text(mime)
	if !ok {
		return nil, fmt.Errorf("output has no %s", mime)
	}
	raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(one), ""))
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", mime, err)
	}
	return raw, nil
}

func (b Bundle) size() (n int) {
	for mime, v := range b {
		n += len(mime) + len(v)
	}
	return n
}

// Error is an exception in a kernel's language.
type Error struct {
	Type      string   `json:"type"`
	Message   string   `json:"message"`
	Traceback []string `json:"traceback"`
}

// Result is the outcome of one execution.
type Result struct {
	Stdout, Stderr text.Last
	Value          Bundle   // of the last expression; nil: it has none
	Displays       []Bundle // in their order
	Dropped        int      // displays that were not kept
	Error          *Error   // nil: the code raised nothing
	Count          int      // of the execution in its kernel
	TimedOut       bool     // the code was interrupted at its time limit

	refused bool // the kernel did not execute the code
}

// Output is one output of an execution, as it happens. Exactly one of the first three fields is set.
type Output struct {
	Stdout, Stderr string
	Display        Bundle
	Value          bool // Display is the value of the last expression
}

// collector builds a Result from the messages of one execution.
type collector struct {
	result Result
	emit   func(Output)   // may be nil
	raw    func(*Message) // may be nil
	size   int            // of the kept bundles
	ids    map[string]int
	clear  bool // the next output replaces all outputs before it
}

func newCollector(emit func(Output)) *collector {
	c := &collector{emit: emit, ids: map[string]int{}}
	c.result.Stdout.Most, c.result.Stderr.Most = MaxStream, MaxStream
	return c
}

// content is the union of the fields of all output messages.
type content struct {
	Name      string `json:"name"`
	Text      string `json:"text"`
	Data      Bundle `json:"data"`
	Count     int    `json:"execution_count"`
	Wait      bool   `json:"wait"`
	Transient struct {
		ID string `json:"display_id"`
	} `json:"transient"`
	Ename     string   `json:"ename"`
	Evalue    string   `json:"evalue"`
	Traceback []string `json:"traceback"`
}

// take adds a message of the iopub channel. It ignores messages that are not outputs, and messages whose content does not fit
// their type.
func (c *collector) take(m *Message) {
	if c.raw != nil {
		c.raw(m)
	}
	var o content
	if json.Unmarshal(m.Content, &o) != nil {
		return
	}
	switch m.Header.Type {
	case "stream":
		c.stream(o.Name, o.Text)
	case "display_data":
		c.display(o)
	case "update_display_data":
		c.update(o)
	case "execute_result":
		c.value(o)
	case "error":
		c.failed(o)
	case "clear_output":
		if c.clear = o.Wait; !o.Wait {
			c.reset()
		}
	}
}

func (c *collector) stream(name, s string) {
	c.replace()
	to, live := &c.result.Stdout, Output{Stdout: s}
	if name == "stderr" {
		to, live = &c.result.Stderr, Output{Stderr: s}
	}
	to.Write([]byte(s))
	c.send(live)
}

func (c *collector) display(o content) {
	c.replace()
	c.send(Output{Display: o.Data})
	if !c.fits(o.Data) {
		return
	}
	if o.Transient.ID != "" {
		c.ids[o.Transient.ID] = len(c.result.Displays)
	}
	c.result.Displays = append(c.result.Displays, o.Data)
}

// update replaces a display of this execution.
func (c *collector) update(o content) {
	i, known := c.ids[o.Transient.ID]
	if !known {
		return
	}
	c.size -= c.result.Displays[i].size()
	if c.fits(o.Data) {
		c.result.Displays[i] = o.Data
	} else {
		c.result.Displays[i] = Bundle{}
	}
}

func (c *collector) value(o content) {
	c.replace()
	c.send(Output{Display: o.Data, Value: true})
	if c.fits(o.Data) {
		c.result.Value = o.Data
	}
	c.result.Count = o.Count
}

func (c *collector) failed(o content) {
	e := &Error{Type: short(o.Ename), Message: short(o.Evalue)}
	left := maxError
	for _, line := range o.Traceback {
		if left -= len(line); left < 0 {
			break
		}
		e.Traceback = append(e.Traceback, line)
	}
	c.result.Error = e
}

// fits counts a bundle, and reports whether the result has room for it.
func (c *collector) fits(b Bundle) bool {
	if len(c.result.Displays) >= MaxDisplays || c.size+b.size() > maxBundles {
		c.result.Dropped++
		return false
	}
	c.size += b.size()
	return true
}

// replace drops all outputs so far, if the kernel asked for that before the output that arrives now.
func (c *collector) replace() {
	if c.clear {
		c.clear = false
		c.reset()
	}
}

func (c *collector) reset() {
	kept := c.result
	c.result = Result{Error: kept.Error, Count: kept.Count, Dropped: kept.Dropped}
	c.result.Stdout.Most, c.result.Stderr.Most = MaxStream, MaxStream
	c.size, c.ids = 0, map[string]int{}
}

func (c *collector) send(o Output) {
	if c.emit != nil {
		c.emit(o)
	}
}

func short(s string) string {
	if len(s) > maxError {
		s = strings.ToValidUTF8(s[:maxError], "")
	}
	return s
}
