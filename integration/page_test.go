package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"demesne/integration/fixture"
)

// tab is the tab of a browser, Chromium or Firefox.
type tab interface {
	Open(url string) error
	// Eval evaluates an expression in the page, waits for a promise, and decodes its value as JSON into out, if it is not nil.
	Eval(expression string, out any) error
	// EvalFrames returns the text that an expression has as value in each sandboxed frame. It leaves out frames without one.
	EvalFrames(expression string) []string
	// Said returns the errors of scripts, and what else the browser reports, since the last call.
	Said() []string
	Close()
}

// pageTab is a tab that has logged in to a server's page.
type pageTab struct {
	tab
	t   testing.TB
	ctx context.Context
	url string
}

// pageBrowser is a pageTab of Chromium, which can do more.
type pageBrowser struct {
	*fixture.Browser
	*pageTab
	outputs bool // an HTML output was shown
}

// screenshots names the directory where tests of the page leave pictures for a person; empty: none.
const screenshots = "DEMESNE_SCREENSHOTS"

// browse opens the page of a server, logged in. answer may be nil.
func (b *box) browse(s *apiServer, answer func(method, url, sent string) (int, string, string, bool)) *pageBrowser {
	b.Helper()
	return b.browseWith(s, answer, "--disable-background-networking")
}

// browseWith does that in a browser with these flags.
func (b *box) browseWith(s *apiServer, answer func(method, url, sent string) (int, string, string, bool), flags ...string) *pageBrowser {
	b.Helper()
	program(b, "chromium")
	at, err := fixture.StartBrowser(b.TempDir(), flags...)
	if err != nil {
		b.Fatal(err)
	}
	at.Answer = answer
	p := &pageBrowser{Browser: at, pageTab: b.tab(s, at)}
	p.check(p.Size(1280, 900, false))
	p.logIn(s)
	return p
}

// browseFirefox opens the page of a server in Firefox, logged in.
func (b *box) browseFirefox(s *apiServer) *pageTab {
	b.Helper()
	program(b, "firefox-esr")
	at, err := fixture.StartFirefox(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	p := b.tab(s, at)
	p.logIn(s)
	return p
}

// tab returns the tab of a browser, which ends with the test.
func (b *box) tab(s *apiServer, at tab) *pageTab {
	b.Cleanup(at.Close)
	ctx, cancel := context.WithTimeout(context.Background(), hung)
	b.Cleanup(cancel)
	return &pageTab{at, b, ctx, s.url}
}

// networkChanged is in what Chromium says when it ends loads because an interface of this machine changes, as other tests make it
// change. The page asks again.
const networkChanged = "ERR_NETWORK_CHANGED"

func (p *pageTab) logIn(s *apiServer) {
	p.t.Helper()
	at := s.url + "/page/#token=" + url.QueryEscape(s.key)
	p.check(p.Open(at))
	p.await(`document.readyState === "complete"`)
	if said := p.Said(); strings.Contains(fmt.Sprint(said), networkChanged) {
		p.check(p.Open("about:blank"))
		p.check(p.Open(at))
	} else if len(said) > 0 {
		p.t.Errorf("the browser said %q when the page was opened", said)
	}
	p.await(`document.querySelector("#top nav a[aria-current]")`)
}

func (p *pageTab) check(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// await waits until an expression is true.
func (p *pageTab) await(expression string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	for {
		var ok bool
		err := p.Eval("Boolean("+expression+")", &ok)
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			var shown string
			p.Eval("document.body.innerText", &shown)
			p.t.Fatalf("await %q: %v; the page shows %.2000q; the browser said %q", expression, err, shown, p.Said())
		case <-time.After(30 * time.Millisecond):
		}
	}
}

// show opens a view and waits until it has a text.
func (p *pageBrowser) show(hash, text string) {
	p.t.Helper()
	p.check(p.Eval(`(hash => { document.getElementById("main").replaceChildren(); location.hash === hash ? dispatchEvent(new Event("hashchange")) : (location.hash = hash) })(`+quote(hash)+`)`, nil))
	p.await(`document.getElementById("main").innerText.includes(` + quote(text) + `)`)
}

func quote(s string) string { return string(must(json.Marshal(s))) }

// picture leaves a screenshot for a person, in each of the usual shapes.
func (p *pageBrowser) picture(name string) {
	p.t.Helper()
	dir := os.Getenv(screenshots)
	if dir == "" {
		return
	}
	time.Sleep(300 * time.Millisecond) // only for a person who looks at the picture: transitions end
	for _, shape := range []struct {
		name          string
		width, height int
		dark          bool
	}{{"light", 1280, 900, false}, {"dark", 1280, 900, true}, {"phone", 390, 844, false}} {
		p.check(p.Size(shape.width, shape.height, shape.dark))
		time.Sleep(150 * time.Millisecond) // as above
		p.check(p.Screenshot(filepath.Join(dir, name+"-"+shape.name+".png")))
	}
	p.check(p.Size(1280, 900, false))
}

// pageViews are the views of the page, each with a text that it shows once it is complete.
var pageViews = []struct{ name, hash, text string }{
	{"sandboxes", "#/sandboxes", "nightly-docs"}, {"runs", "#/runs", "node build.mjs"}, {"jobs", "#/jobs", "./backup.sh"}, {"agents", "#/agents", "Update the changelog"},
	{"approvals", "#/approvals", "docker restart"}, {"sandbox", "#/sandbox/" + fakeID, "user-namespace"}, {"terminal", "#/sandbox/" + fakeID + "/terminal", "api-tests"},
	{"files", "#/sandbox/" + fakeID + "/files/at/%2Fnotes.txt", "Line three"}, {"changes", "#/sandbox/" + fakeID + "/files/changes/%2Fetc%2Fmotd", "A new line"},
	{"network", "#/sandbox/" + fakeID + "/network", "169.254.169.254"}, {"processes", "#/sandbox/" + fakeID + "/processes", "uvicorn"},
	{"outputs", "#/sandbox/" + fakeID + "/outputs", "quince"}, {"run", "#/run/run-51f0", "quince"}, {"job", "#/job/job-8812", "CC kernel/fork.o"},
	{"agent", "#/agent/job-a771", "I will look at the build log"}, {"conversations", "#/conversations", "Update the changelog"}, {"conversation", "#/conversation/talk-1", "I will look at the build log"},
	{"lost", "#/sandbox/sb-gone", "no such sandbox"},
}

// TestPageViews opens each view with markup in every text of every answer. None becomes markup, no script fails,
// and no policy is violated.
func TestPageViews(t *testing.T) {
	b := newBox(t)
	f := &fakeAPI{planted: markup}
	p := b.browse(b.serveAPI(), f.answer)
	for _, v := range pageViews {
		p.show(v.hash, v.text)
		if strings.Contains(v.hash, "outputs") || v.name == "run" || v.name == "conversation" {
			p.await(`document.querySelector(".output iframe")`)
			time.Sleep(300 * time.Millisecond) // the document in the frame
		}
		p.checkMarkup(v.name)
	}
	if len(f.asked) > 0 {
		t.Errorf("requested %q", f.asked)
	}
	if f.planted = ""; os.Getenv(screenshots) != "" {
		for _, v := range pageViews {
			p.show(v.hash, v.text)
			p.picture(v.name)
		}
	}
}

// checkMarkup checks that the planted text is in the view, as text.
func (p *pageBrowser) checkMarkup(view string) {
	p.t.Helper()
	var found struct {
		Ran            bool
		Elements, Seen int
	}
	p.check(p.Eval(`({ran: "ran" in window, seen: document.body.textContent.split("onerror=").length - 1,
		elements: document.querySelectorAll("script:not([type=module]), img[onerror], svg[onload], iframe[srcdoc], [href^='javascript:']").length})`, &found))
	if found.Ran || found.Elements > 0 {
		p.t.Errorf("%s: %+v", view, found)
	}
	if found.Seen == 0 && view != "lost" {
		p.t.Errorf("%s shows none of the planted text", view)
	}
	p.outputs = p.outputs || view == "outputs" || view == "run" || view == "conversation"
	for _, s := range p.Said() {
		switch {
		case strings.Contains(s, "status of 40"), strings.Contains(s, "WebSocket"), strings.Contains(s, "/v1/events"): // what the fake lacks
		case strings.Contains(s, networkChanged):
		case strings.Contains(s, "blob:"): // the planted text is not an image
		case strings.Contains(s, "about:srcdoc"), strings.Contains(s, "frame/still.html"), strings.Contains(s, "failed:  csp"), strings.Contains(s, "Content Security Policy"):
			if !p.outputs { // a policy keeps an output's scripts from running, and the browser may say so later
				p.t.Errorf("%s: %s", view, s)
			}
		default:
			p.t.Errorf("%s: %s", view, s)
		}
	}
}
