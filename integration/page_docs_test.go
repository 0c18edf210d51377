package integration

import (
	"slices"
	"strings"
	"testing"
)

// TestPageDocs opens the document of the API in Chromium. It shows every operation without the token, sends a request by its
// example with it, and loads nothing from elsewhere.
func TestPageDocs(t *testing.T) {
	b := newBox(t)
	s := b.serveAPI()
	p := b.browse(s, nil)
	p.check(p.Open(s.url + "/docs")) // logged in by the page
	p.await(`document.getElementById("get-server")`)
	p.check(p.Eval(`(d => { d.open = true; d.querySelector("button").click() })(document.getElementById("get-server"))`, nil))
	p.await(`document.querySelector("#get-server pre").innerText.includes('"operator": true')`)
	p.check(p.Call("Network.clearBrowserCookies", nil, nil))
	p.check(p.Open(s.url + "/docs"))
	p.await(`document.querySelectorAll("details").length > 60`)
	p.check(p.Eval(`(d => { d.open = true; d.querySelector("button").click() })(document.getElementById("get-server"))`, nil))
	p.await(`document.querySelector("#get-server pre").innerText.includes("no valid token")`)
	p.check(p.Eval(`document.getElementById("token").value = "`+s.key+`"`, nil))
	p.check(p.Eval(`(d => { d.open = true; d.querySelector("textarea").value = JSON.stringify({command: "echo $((6*7))\"<b>\""}); d.querySelector("button").click(); d.scrollIntoView() })(document.getElementById("run"))`, nil))
	p.await(`document.querySelector("#run pre").innerText.includes('"text": "42<b>') && document.querySelector("#run p").innerText.startsWith("Makes a sandbox")`)
	p.picture("docs")
	for _, id := range []string{"create-sandbox", "get-sandbox"} { // one with a body, one with a path
		p.check(p.Eval(`document.getElementById("`+id+`").open = true`, nil))
	}
	var example string
	p.check(p.Eval(`document.querySelector("#create-sandbox textarea").value`, &example))
	if !strings.Contains(example, `"name": "web"`) {
		t.Errorf("the example: %s", example)
	}
	p.check(p.Eval(`(d => { d.querySelector("input").value = "../none"; d.querySelector("button").click() })(document.getElementById("get-sandbox"))`, nil))
	p.await(`document.querySelector("#get-sandbox pre").innerText.startsWith("404")`)
	p.check(p.Eval(`(f => { f.value = "audit"; f.dispatchEvent(new Event("input")) })(document.getElementById("find"))`, nil))
	p.await(`[...document.querySelectorAll("details")].filter(d => !d.hidden).length === 2`)
	var from []string
	p.check(p.Eval(`performance.getEntriesByType("resource").map(e => new URL(e.name).origin)`, &from))
	if slices.ContainsFunc(from, func(o string) bool { return o != s.url }) || len(from) < 3 {
		t.Errorf("loaded from %q", from)
	}
	p.check(p.Eval(`document.querySelectorAll("details").forEach(d => { d.hidden = false; d.open = true })`, nil))
	p.check(p.Size(390, 800, true))
	var wide bool
	p.check(p.Eval(`document.documentElement.scrollWidth > innerWidth`, &wide))
	if wide {
		t.Error("the page is wider than a phone")
	}
	var broken []string
	p.check(p.Eval(`[...document.querySelectorAll("td:first-child code")].filter(c => c.getClientRects().length > 1).map(c => c.textContent)`, &broken))
	if len(broken) > 0 {
		t.Errorf("names of fields are broken into lines: %q", broken)
	}
	for _, said := range p.Said() {
		if strings.Contains(said, "policy") || strings.Contains(said, "Error") {
			t.Errorf("the browser said %q", said)
		}
	}
}
