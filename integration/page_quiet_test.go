package integration

import "testing"

// quick makes the long timers of a page short, and counts how often it reads the list of sandboxes.
const quick = `(() => {
	const later = window.setTimeout, fetched = window.fetch;
	window.setTimeout = (f, time, ...more) => later(f, time >= 1000 ? 10 : time, ...more);
	window.lists = 0;
	window.fetch = (url, ...more) => {
		if (String(url).startsWith("/v1/sandboxes?")) window.lists++;
		return fetched(url, ...more);
	};
})()`

// TestPageQuiet checks that the page reads the list of sandboxes when it changes, also by another program, and not by the clock:
// its timers run a hundred times faster here.
func TestPageQuiet(t *testing.T) {
	b := newBox(t)
	s := b.serveAPI()
	p := b.browse(s, nil)
	p.check(p.Call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": quick}, nil))
	p.check(p.Open(s.url + "/page/?quick#/sandboxes"))
	p.await(`window.lists > 0 && document.getElementById("main").innerText.includes("No sandboxes")`)
	b.cli("create", "--name", "by-another-program")
	p.await(`document.getElementById("main").innerText.includes("by-another-program")`)
	b.cli("rm", "by-another-program")
	p.await(`document.getElementById("main").innerText.includes("No sandboxes")`)
	var lists int
	if p.check(p.Eval("window.lists", &lists)); lists > 40 {
		t.Errorf("the page read the list %d times", lists)
	}
}
