package webpage

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"demesne/internal/text"
)

// Times and sizes of a rendering.
const (
	loadTime   = 15 * time.Second // until the page loads nothing more, after which it is read anyway
	waitTime   = 25 * time.Second // until an element is there
	pollTime   = 100 * time.Millisecond
	viewWidth  = 1280
	viewHeight = 800
	maxAsked   = 100
)

// chromiumFlags are for a sandbox, which contains the browser.
var chromiumFlags = strings.Fields(`--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --mute-audio --hide-scrollbars
	--disable-background-networking --disable-component-update --disable-extensions --disable-sync
	--user-data-dir=/tmp/webpage --remote-debugging-pipe about:blank`)

// message is one of the DevTools protocol: a command, its answer, or an event. A zero byte ends each.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// object is a JSON object of a command.
type object = map[string]any

// tab is a chromium with one tab. Its page may say anything, and the sandbox bounds the memory for that.
type tab struct {
	to      io.Writer
	heard   <-chan message // closed when chromium ends
	session string
	frame   string // the main one
	last    int
	status  int  // of the document in frame
	quiet   bool // frame loads nothing more
	asked   map[string]bool
}

// render reads a page as a browser shows it. asked has the hosts that the page asked for.
func (o *Order) render(ctx context.Context, address string) (p *Page, asked []string, err error) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		return nil, nil, fmt.Errorf("rendering needs chromium, which the image of the sandbox does not have (package %s)", packages["chromium"])
	}
	cmd := exec.CommandContext(ctx, program, chromiumFlags...)
	cmd.Env = append(os.Environ(), "HOME=/tmp")
	said := &text.Last{Most: maxTitle}
	cmd.Stderr = said
	in, to, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	from, out, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	cmd.ExtraFiles = []*os.File{in, out}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	in.Close()
	out.Close()
	heard := make(chan message)
	go hear(from, heard)
	t := &tab{to: to, heard: heard, asked: map[string]bool{}}
	p, err = t.read(o, address)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("chromium ended: %s", said.End(maxTitle))
	}
	return p, slices.Sorted(maps.Keys(t.asked)), err // the sandbox ends with this program, and chromium with it
}

// hear reads messages until chromium ends.
func hear(from io.Reader, heard chan<- message) {
	defer close(heard)
	for r := bufio.NewReader(from); ; {
		b, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(b[:len(b)-1], &m) == nil {
			heard <- m
		}
	}
}

// read opens address, waits, and reads the document.
func (t *tab) read(o *Order, address string) (*Page, error) {
	if err := t.open(); err != nil {
		return nil, err
	}
	var went struct{ ErrorText string }
	if err := t.do("Page.navigate", object{"url": address}, &went); err != nil || went.ErrorText != "" {
		return nil, fmt.Errorf("open: %w", errors.Join(err, errors.New(went.ErrorText)))
	}
	if err := t.wait(o.WaitFor); err != nil {
		return nil, err
	}
	var tree struct {
		FrameTree struct{ Frame struct{ URL string } }
	}
	var root struct{ Root struct{ NodeID int } }
	var document struct{ OuterHTML string }
	err := t.do("Page.getFrameTree", nil, &tree)
	if err == nil {
		err = t.do("DOM.getDocument", object{"depth": 0}, &root)
	}
	if err == nil {
		err = t.do("DOM.getOuterHTML", object{"nodeId": root.Root.NodeID}, &document)
	}
	if err != nil {
		return nil, err
	}
	all := document.OuterHTML
	p := &Page{URL: tree.FrameTree.Frame.URL, Status: t.status, Truncated: len(all) > maxBody}
	if err := p.readHTML([]byte(all[:min(len(all), maxBody)])); err != nil {
		return nil, err
	}
	for _, quality := range []int{75, 30, 10} {
		var shot struct{ Data []byte }
		if !o.Screenshot || len(p.Screenshot) > 0 {
			break
		}
		if err := t.do("Page.captureScreenshot", object{"format": "jpeg", "quality": quality}, &shot); err != nil {
			return nil, err
		}
		if len(shot.Data) <= maxShot {
			p.Screenshot = shot.Data
		}
	}
	return p, nil
}

// open makes the tab, which reports what its page loads.
func (t *tab) open() error {
	var made struct{ TargetID, SessionID string }
	if err := t.do("Target.createTarget", object{"url": "about:blank"}, &made); err != nil {
		return err
	}
	t.frame = made.TargetID // of a main frame, both are the same
	if err := t.do("Target.attachToTarget", object{"targetId": made.TargetID, "flatten": true}, &made); err != nil {
		return err
	}
	t.session = made.SessionID
	for method, params := range map[string]object{
		"Page.enable": nil, "Network.enable": nil, "Page.setLifecycleEventsEnabled": {"enabled": true},
		"Emulation.setDeviceMetricsOverride": {"width": viewWidth, "height": viewHeight, "deviceScaleFactor": 1, "mobile": false},
	} {
		if err := t.do(method, params, nil); err != nil {
			return err
		}
	}
	return nil
}

// wait waits until an element is there, or without a selector until the page loads nothing more.
func (t *tab) wait(selector string) error {
	if selector == "" {
		for late := time.After(loadTime); !t.quiet; {
			select {
			case m, ok := <-t.heard:
				if !ok {
					return io.ErrUnexpectedEOF
				}
				t.note(m)
			case <-late:
				return nil
			}
		}
		return nil
	}
	// The page's scripts cannot change these commands, and a new document only makes one fail.
	for late := time.Now().Add(waitTime); time.Now().Before(late); time.Sleep(pollTime) {
		var root struct{ Root struct{ NodeID int } }
		var found struct{ NodeID int }
		err := t.do("DOM.getDocument", object{"depth": 0}, &root)
		if err == nil {
			err = t.do("DOM.querySelector", object{"nodeId": root.Root.NodeID, "selector": selector}, &found)
		}
		if errors.Is(err, io.ErrUnexpectedEOF) || found.NodeID != 0 {
			return err
		}
	}
	return fmt.Errorf("wait_for: no element matches %q after %s", text.SafeLine(selector), waitTime)
}

// do performs a command of the protocol.
func (t *tab) do(method string, params object, result any) error {
	t.last++
	m := message{ID: t.last, Session: t.session, Method: method}
	var err error
	if params != nil {
		if m.Params, err = json.Marshal(params); err != nil {
			return err
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if _, err := t.to.Write(append(b, 0)); err != nil {
		return io.ErrUnexpectedEOF
	}
	for m := range t.heard {
		switch {
		case m.ID != t.last:
			t.note(m)
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case result == nil:
			return nil
		default:
			return json.Unmarshal(m.Result, result)
		}
	}
	return io.ErrUnexpectedEOF
}

// note keeps what an event says of the document and of requests.
func (t *tab) note(m message) {
	var e struct {
		FrameID, Name, Type string
		Response            struct{ Status int }
		Request             struct{ URL string }
	}
	if json.Unmarshal(m.Params, &e) != nil {
		return
	}
	if u, err := url.Parse(e.Request.URL); err == nil && len(t.asked) < maxAsked && len(u.Hostname()) <= maxTitle {
		t.asked[u.Hostname()] = true
	}
	switch {
	case e.FrameID != t.frame:
	case m.Method == "Network.responseReceived" && e.Type == "Document":
		t.status, t.quiet = e.Response.Status, false
	case m.Method == "Page.lifecycleEvent" && e.Name == "networkIdle" && t.status != 0:
		t.quiet = true
	}
}
